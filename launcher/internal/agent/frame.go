package agent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// frameMax bounds a frame: the longest line of a rank and what stands beside it, and
// more than an environment and argument list of the largest size that a kernel takes.
const frameMax = stdio.LineMax + 4<<20

// order is what a controller sends: one of its fields.
type order struct {
	Probe   bool           `msgpack:"q,omitempty"` // what machine is it?
	Setup   *setup         `msgpack:"s,omitempty"`
	Begin   *begin         `msgpack:"g,omitempty"` // the ranks
	Peers   map[int]string `msgpack:"p,omitempty"` // addresses by host index, those that the agent needs
	Command *host.Command  `msgpack:"c,omitempty"`
	Ping    bool           `msgpack:"i,omitempty"` // are you there, and does your host do what it is told?
	Lost    *lost          `msgpack:"l,omitempty"` // a host is gone
	Piece   *piece         `msgpack:"b,omitempty"` // the answer to Want
	Relay   *relayWord     `msgpack:"r,omitempty"` // comes first where a relay has started the agent, of which it is
	Detour  []byte         `msgpack:"d,omitempty"` // connections between hosts: see detour
}

// relayWord is what a relay tells the agents that it starts.
type relayWord struct {
	From string // the address that gorun has come from, as far as the relay knows
	PID  int    // the relay's, on the agent's own host; 0: it is on another one
}

// want asks for a program's bytes from an offset on. One is under way at a time, so that a slow host does not
// fill this machine's memory; a host that asks for more is lost.
type want struct {
	App    int   `msgpack:"a"`
	Offset int64 `msgpack:"o"`
}

// piece is the answer: bytes, or why there are none.
type piece struct {
	Data []byte `msgpack:"d,omitempty"`
	Why  string `msgpack:"w,omitempty"`
}

// pieceMost bounds a piece.
const pieceMost = 1 << 20

// begin has an agent start its ranks.
type begin struct{ Master string } // the address of MasterSpec.Host

// lost is a host that the controller takes for gone.
type lost struct{ Host, Why string }

type setup struct {
	Spec host.Spec
	Key  []byte
	Way  Way
	// Lease is how long the agent's ranks outlive the controller's last word; 0: until the
	// stream ends.
	Lease time.Duration
	// Port is where the controller takes datagrams, which renew the lease too; 0: nowhere.
	// They are of agent number Index of the Spec.
	Port int
}

// report is what an agent sends: one of its fields.
type report struct {
	Machine *topo.Machine `msgpack:"m,omitempty"` // the answer to Probe
	Address string        `msgpack:"a,omitempty"`
	Why     string        `msgpack:"w,omitempty"` // it is that Address
	Needs   []int         `msgpack:"h,omitempty"` // whose addresses it wants to be told
	Event   *host.Event   `msgpack:"e,omitempty"`
	Pong    bool          `msgpack:"o,omitempty"` // the answer to Ping, before host.Turned
	Suspect string        `msgpack:"u,omitempty"` // a host that does not answer this one
	Want    *want         `msgpack:"n,omitempty"` // a piece of a program
	Detour  []byte        `msgpack:"d,omitempty"` // connections between hosts: see detour
}

// A heardReader tells when something is read.
type heardReader struct {
	r     io.Reader
	heard func()
}

func (h heardReader) Read(b []byte) (int, error) {
	n, err := h.r.Read(b)
	if n > 0 {
		h.heard()
	}
	return n, err
}

// isClosed tells whether an error is that a file or socket was closed here.
func isClosed(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) }

// readFrame reads one frame into v. At the end of the stream between frames the
// error is io.EOF.
func readFrame(r *bufio.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > frameMax {
		return fmt.Errorf("frame of %d bytes, at most %d are allowed: this is no stream of an agent", n, frameMax)
	}
	// Grown as bytes arrive, not as the header promises.
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(body) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if err := msgpack.Unmarshal(body, v); err != nil {
		return fmt.Errorf("frame of %d bytes: %w", n, err)
	}
	return nil
}

func appendFrame(b []byte, v any) ([]byte, error) {
	body, err := msgpack.Marshal(v)
	if err == nil && len(body) > frameMax {
		err = fmt.Errorf("frame of %d bytes, at most %d are allowed", len(body), frameMax)
	}
	if err != nil {
		return b, err
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...), nil
}

// outbox writes frames from a queue, in a goroutine, so that put never blocks.
type outbox struct {
	w    io.Writer
	done chan struct{}
	sent atomic.Int64 // bytes of ahead that are written
	went func()       // after each piece of that

	mu     sync.Mutex
	wake   sync.Cond // of mu
	queue  []byte
	after  []func() // when that is written
	ahead  []byte   // goes before the queue, and in pieces; not copied
	held   bool     // the queue waits for release
	err    error    // of the writer; nothing is queued any more
	closed bool     // write what is queued and end
}

// newOutbox makes one. held: what is put waits for release, and close drops it. went is told of each
// piece of what goes ahead.
func newOutbox(w io.Writer, held bool, went func()) *outbox {
	o := &outbox{w: w, done: make(chan struct{}), held: held, went: went}
	o.wake.L = &o.mu
	go o.run()
	return o
}

// put queues a message. then is called when it is written, unless it never is.
func (o *outbox) put(v any, then ...func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	queue, err := appendFrame(o.queue, v)
	o.queue = queue
	if err == nil {
		o.after = append(o.after, then...)
	}
	o.wake.Signal()
	return err
}

// before writes bytes that are no frame, although the queue is held.
func (o *outbox) before(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead = b
	o.wake.Signal()
}

// release has the queue written.
func (o *outbox) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	o.wake.Signal()
}

// close ends the goroutine when the queue is written; wait with done.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.wake.Signal()
	o.mu.Unlock()
}

// aheadPiece is how much of what goes ahead one write takes, so that its progress can be told.
const aheadPiece = 256 << 10

func (o *outbox) run() {
	defer close(o.done)
	for {
		o.mu.Lock()
		for len(o.ahead) == 0 && (len(o.queue) == 0 || o.held) && !o.closed {
			o.wake.Wait()
		}
		var next []byte
		var after []func()
		ahead := len(o.ahead) > 0 && !o.closed
		switch {
		case ahead:
			n := min(len(o.ahead), aheadPiece)
			next, o.ahead = o.ahead[:n], o.ahead[n:]
		case !o.held:
			next, o.queue = o.queue, nil
			after, o.after = o.after, nil
		}
		o.mu.Unlock()
		if len(next) == 0 {
			return
		}
		if err := stdio.Write(o.w, next); err != nil {
			o.mu.Lock()
			o.err, o.queue, o.ahead, o.closed = err, nil, nil, true
			o.mu.Unlock()
			return
		}
		if ahead {
			o.sent.Add(int64(len(next)))
			o.went()
		}
		for _, then := range after {
			then()
		}
	}
}
