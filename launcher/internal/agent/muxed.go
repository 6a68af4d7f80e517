package agent

import (
	"io"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// A muxed is the stream between a controller and a relay as yamux has it. While a session of yamux ends, those that read its streams poll,
// until its own reader has ended, which then waits for a CPU behind all of them: with 30 hosts and other programs beside, that took 20 s. So
// that reader ends first.
type muxed struct {
	r    io.Reader
	w    io.Writer
	from readEnd   // what r reads
	to   io.Closer // what w writes
	over chan struct{}
	once sync.Once // closes it, when r has ended
}

func newMuxed(r io.Reader, w io.Writer, from readEnd, to io.Closer) *muxed {
	return &muxed{r: r, w: w, from: from, to: to, over: make(chan struct{})}
}

func (m *muxed) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	if err != nil {
		m.once.Do(func() { close(m.over) })
	}
	return n, err
}

func (m *muxed) Write(b []byte) (int, error) {
	n, err := m.w.Write(b)
	if err != nil {
		m.stop()
		<-m.over
	}
	return n, err
}

// stop ends the reader, and so the session.
func (m *muxed) stop() { _ = m.from.SetReadDeadline(time.Unix(1, 0)) }

// Close ends a Write in progress.
func (m *muxed) Close() error {
	m.stop()
	return m.to.Close()
}

// streamsWaiting bounds the streams that are open and not taken yet.
const streamsWaiting = 1024

// relayConfig has no time in which anything must happen: a slow host is none that is lost, and of that the leases decide.
func relayConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog, c.LogOutput = streamsWaiting, io.Discard
	c.EnableKeepAlive, c.ConnectionWriteTimeout, c.StreamOpenTimeout, c.StreamCloseTimeout = false, 1000*time.Hour, 0, 0
	return c
}
