package meeting

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// Config says who meets. All members have the same addresses and the same key.
type Config struct {
	Addresses []string // of the members, by rank; of all but the first only for people
	Rank      int
	Listener  net.Listener // of rank 0; the meeting closes it when all have come
	Key       []byte       // nil: none
	Timeout   time.Duration
	Log       func(line string) // nil: silent
}

// A Meeting is a member's exchange with all others: a wireup.Exchange.
type Meeting struct {
	cfg   Config
	wires []*wire // of rank 0: by rank; of the others: one, to rank 0
}

const (
	handshakeMost = 10 * time.Second // to say who one is
	dialMost      = 5 * time.Second  // to reach the address
	grace         = 2 * time.Second  // how much later than rank 0, which knows who is missing, another one gives up
	atOnce        = 64               // how many may be saying who they are
)

const (
	helloMost = 1 << 20
	cardMost  = 16 << 20
	cardsMost = 1 << 30
)

// Meet returns when all members have come.
func Meet(ctx context.Context, cfg Config) (*Meeting, error) {
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	m := &Meeting{cfg: cfg}
	var err error
	if cfg.Rank == 0 {
		m.wires = make([]*wire, len(cfg.Addresses))
		err = m.host(ctx)
	} else {
		err = m.visit(ctx)
	}
	if err != nil {
		m.tell(err)
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// name is a member for people.
func (m *Meeting) name(rank int) string {
	if a := m.cfg.Addresses[rank]; a != "" {
		return fmt.Sprintf("rank %d (%s)", rank, a)
	}
	return fmt.Sprintf("rank %d", rank)
}

// An arrival is one that has said who it is, or that was not let in.
type arrival struct {
	rank int
	w    *wire
	from net.Addr
	err  error
}

// host is rank 0's part: it takes those that come until all are here.
func (m *Meeting) host(ctx context.Context) error {
	within, cancel := context.WithCancel(ctx)
	arrivals := make(chan arrival)
	var all sync.WaitGroup
	all.Go(func() { m.accept(within, arrivals, &all) })
	defer func() {
		cancel()
		m.cfg.Listener.Close()
		all.Wait()
	}()
	late := time.NewTimer(m.cfg.Timeout)
	defer late.Stop()
	n := len(m.cfg.Addresses)
	for here := 1; here < n; {
		select {
		case a := <-arrivals:
			if a.err == nil && m.wires[a.rank] != nil {
				a.err = fmt.Errorf("rank %d is here already, from %s: each process needs a rank of its own", a.rank, m.wires[a.rank].conn.RemoteAddr())
				a.w.refuse(a.err)
				a.w.conn.Close()
			}
			if a.err != nil {
				m.cfg.Log(fmt.Sprintf("a connection from %s was not let in: %v", a.from, a.err))
				continue
			}
			m.wires[a.rank] = a.w
			here++
		case <-late.C:
			var missing []string
			for r := 1; r < n; r++ {
				if m.wires[r] == nil {
					missing = append(missing, m.name(r))
				}
			}
			return fmt.Errorf("%d of %d members have not come to %s within %v: %s: start them with the same list of addresses", len(missing), n, m.cfg.Addresses[0], m.cfg.Timeout, strings.Join(missing, ", "))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return m.each(func(_ int, w *wire) error { return w.write([]byte{frameGo}) })
}

// accept lets members in until ctx ends, each on a goroutine of its own: a stranger may say nothing.
func (m *Meeting) accept(ctx context.Context, arrivals chan<- arrival, all *sync.WaitGroup) {
	slots := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		conn, err := m.cfg.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) { // no descriptor for another one, or one that left at once
				time.Sleep(time.Millisecond)
			}
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			a := arrival{from: conn.RemoteAddr()}
			a.w, a.rank, a.err = m.welcome(ctx, conn)
			if a.err != nil {
				conn.Close()
			}
			select {
			case arrivals <- a:
			case <-ctx.Done():
				conn.Close()
			}
		})
	}
}

// A hello is what one that has come says.
type hello struct {
	Rank      int      `msgpack:"rank"`
	Addresses []string `msgpack:"addresses"`
}

// welcome hears who has come. The wire has no deadline afterwards.
func (m *Meeting) welcome(ctx context.Context, conn net.Conn) (w *wire, rank int, err error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeMost))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if w, err = begin(conn, m.cfg.Key, false); err != nil {
		return nil, 0, err
	}
	b, err := w.receive(frameHello, helloMost) // one with another key learns so from the sum of the answer
	var h hello
	if err == nil {
		err = pack.Unmarshal(b, &h)
	}
	if err == nil {
		err = m.judge(&h, conn)
	}
	if err != nil {
		w.refuse(err)
		return nil, 0, err
	}
	peer.Alive(conn)
	return w, h.Rank, conn.SetDeadline(time.Time{})
}

// judge tells why one that has come is none of the others.
func (m *Meeting) judge(h *hello, conn net.Conn) error {
	own := m.cfg.Addresses
	switch n := len(h.Addresses); {
	case n != len(own) || !slices.Equal(h.Addresses[1:], own[1:]): // the first may have several names, and was found
		return fmt.Errorf("the lists of addresses differ: rank %d has %d (%s), rank 0 has %d (%s)", h.Rank, n, strings.Join(h.Addresses, ","), len(own), strings.Join(own, ","))
	case h.Rank < 1 || h.Rank >= n:
		return fmt.Errorf("found rank %d, expected 1 to %d, for there are %d addresses, and rank 0 is here", h.Rank, n-1, n)
	}
	return m.whose(conn)
}

// visit is another rank's part: it calls rank 0 until that has heard it and all are here.
func (m *Meeting) visit(ctx context.Context) error {
	at, began := m.cfg.Addresses[0], time.Now()
	d := net.Dialer{Timeout: dialMost}
	var conn net.Conn
	for pause := 10 * time.Millisecond; conn == nil; pause = min(2*pause, time.Second/2) {
		var err error
		if conn, err = d.DialContext(ctx, "tcp", at); err == nil {
			break
		}
		if dns, ok := errors.AsType[*net.DNSError](err); ctx.Err() == nil && ok && dns.IsNotFound {
			return fmt.Errorf("rank 0's address %s: %w", at, err)
		}
		left := m.cfg.Timeout - time.Since(began)
		if ctx.Err() == nil && left <= 0 {
			return fmt.Errorf("rank 0 has not answered at %s within %v: %w", at, m.cfg.Timeout, peer.Reason(err))
		}
		select {
		case <-time.After(min(pause, max(left, 0))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	err := m.introduce(conn)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errStranger):
		return fmt.Errorf("rank 0 at %s has not said within %v that all are here", at, m.cfg.Timeout)
	}
	return fmt.Errorf("rank 0 at %s: %w", at, err)
}

func (m *Meeting) introduce(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(handshakeMost))
	w, err := begin(conn, m.cfg.Key, true)
	if err == nil {
		err = m.whose(conn)
	}
	if err != nil {
		conn.Close()
		return err
	}
	m.wires = []*wire{w}
	hello, err := pack.Marshal(hello{m.cfg.Rank, m.cfg.Addresses})
	if err == nil {
		err = w.write(append([]byte{frameHello}, hello...))
	}
	if err != nil {
		return err
	}
	peer.Alive(conn)
	w.limit(m.cfg.Timeout + grace)
	_, err = w.receive(frameGo, helloMost)
	return gone(err)
}

// whose refuses processes of other users on this host, where there is no key that tells.
func (m *Meeting) whose(conn net.Conn) error {
	var kernel peer.Kernel
	uid, err := kernel.Other(conn)
	if m.cfg.Key != nil || err != nil || uid < 0 || uid == os.Geteuid() {
		return nil // err: of a sandbox whose kernel does not tell
	}
	return fmt.Errorf("the process at %s belongs to user %d, and this one to %d: give all members the same key", conn.RemoteAddr(), uid, os.Geteuid())
}

// gone is err, where a connection has ended without a word said plainly.
func gone(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is gone: its connection has ended (%w)", peer.Reason(err))
	}
	return err
}

// each calls f for each wire at the same time, and gives the first error, with whose it is.
func (m *Meeting) each(f func(rank int, w *wire) error) error {
	var all sync.WaitGroup
	var once sync.Once
	var first error
	for rank, w := range m.wires {
		if w == nil {
			continue
		}
		all.Go(func() {
			if err := f(rank, w); err != nil {
				once.Do(func() {
					first = fmt.Errorf("%s: %w", m.name(rank), gone(err))
					for _, o := range m.wires { // the others wait in vain
						if o != nil {
							_ = o.conn.SetReadDeadline(time.Unix(1, 0))
						}
					}
				})
			}
		})
	}
	all.Wait()
	return first
}

// tell has the others know why this member gives up, as far as they listen.
func (m *Meeting) tell(err error) {
	for _, w := range m.wires {
		if w != nil {
			w.limit(time.Second)
			w.refuse(err)
		}
	}
}

// AllGather gives each member the cards of all, by rank. After an error the meeting is over.
func (m *Meeting) AllGather(ctx context.Context, card []byte) ([][]byte, error) {
	for _, w := range m.wires {
		if w != nil {
			w.limit(0)
		}
	}
	stop := context.AfterFunc(ctx, func() {
		for _, w := range m.wires {
			if w != nil {
				w.limit(time.Nanosecond)
			}
		}
	})
	all, err := m.gather(card)
	if stop() && err == nil { // a limit that came later would be the next call's
		return all, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.tell(err)
	_ = m.Close()
	return nil, err
}

func (m *Meeting) gather(card []byte) ([][]byte, error) {
	own := append([]byte{frameCard}, card...)
	all := make([][]byte, len(m.cfg.Addresses))
	if m.cfg.Rank == 0 {
		all[0] = own[1:]
		err := m.each(func(rank int, w *wire) (err error) {
			all[rank], err = w.receive(frameCard, cardMost)
			return err
		})
		if err != nil {
			return nil, err
		}
		packed, err := pack.Marshal(all)
		if err != nil {
			return nil, err
		}
		cards := append([]byte{frameCard}, packed...)
		return all, m.each(func(_ int, w *wire) error { return w.write(cards) })
	}
	err := m.wires[0].write(own)
	if err == nil {
		own, err = m.wires[0].receive(frameCard, cardsMost)
	}
	if err == nil {
		if err = pack.Unmarshal(own, &all); err == nil && len(all) != len(m.cfg.Addresses) {
			err = errStranger
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name(0), gone(err))
	}
	return all, nil
}

// Barrier returns when all members have called it.
func (m *Meeting) Barrier(ctx context.Context) error {
	_, err := m.AllGather(ctx, nil)
	return err
}

// BarrierServing is Barrier for a member that calls serve now and then while it waits.
func (m *Meeting) BarrierServing(ctx context.Context, serve func() (next time.Duration, err error)) error {
	return wireup.Serving(ctx, m.Barrier, serve)
}

// Secret makes a secret of one that a member has told all the others: where there is a key, nobody knows it
// that has only heard the members.
func (m *Meeting) Secret(told []byte) []byte {
	if m.cfg.Key == nil {
		return told
	}
	h := hmac.New(sha256.New, m.cfg.Key)
	h.Write([]byte("secret of a world\x00"))
	h.Write(told)
	return h.Sum(nil)
}

// Close ends the connections.
func (m *Meeting) Close() error {
	var errs []error
	for i, w := range m.wires {
		if w != nil {
			errs = append(errs, w.conn.Close())
			m.wires[i] = nil
		}
	}
	return errors.Join(errs...)
}
