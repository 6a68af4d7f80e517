package meeting

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/internal/peer"
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

// host is rank 0's part: it takes those that come until all are here.
func (m *Meeting) host(ctx context.Context) error {
	type arrival struct {
		rank int
		w    *wire
	}
	n := len(m.cfg.Addresses)
	arrivals := make(chan arrival, n)
	within, cancel := context.WithCancel(ctx)
	notes := make(chan string, atOnce)
	var mu sync.Mutex
	taken := map[int]string{} // where a rank has come from
	// admit has one that has come say who it is, and refuses it or takes it.
	admit := func(conn net.Conn) error {
		w, rank, err := m.welcome(within, conn)
		if err != nil {
			return err
		}
		mu.Lock()
		from, again := taken[rank]
		if !again {
			taken[rank] = conn.RemoteAddr().String()
		}
		mu.Unlock()
		if again {
			err := fmt.Errorf("rank %d is here already, from %s: each process needs a rank of its own", rank, from)
			_ = w.write(append([]byte{frameError}, err.Error()...))
			return err
		}
		arrivals <- arrival{rank, w} // has room for all
		return nil
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	all.Go(func() {
		for {
			conn, err := m.cfg.Listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no descriptor for another one, or one that left at once
				select {
				case <-time.After(10 * time.Millisecond):
					continue
				case <-within.Done():
					return
				}
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				if err := admit(conn); err != nil {
					conn.Close()
					select {
					case notes <- fmt.Sprintf("a connection from %s was not let in: %v", conn.RemoteAddr(), err):
					default: // a flood, of which enough is told
					}
				}
			})
		}
	})
	defer func() {
		cancel()
		m.cfg.Listener.Close()
		all.Wait()
		close(arrivals)
		for a := range arrivals { // those that came too late, for who is missing
			m.wires[a.rank] = a.w
		}
	}()
	late := time.NewTimer(m.cfg.Timeout)
	defer late.Stop()
	for here := 1; here < n; {
		select {
		case a := <-arrivals:
			m.wires[a.rank] = a.w
			here++
		case line := <-notes:
			m.cfg.Log(line)
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
	return m.each(func(rank int, w *wire) error { return w.write([]byte{frameGo}) })
}

// welcome hears who has come. The wire has no deadline afterwards.
func (m *Meeting) welcome(ctx context.Context, conn net.Conn) (w *wire, rank int, err error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeMost))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if w, err = begin(conn, m.cfg.Key, false); err != nil {
		return nil, 0, err
	}
	refuse := func(err error) (*wire, int, error) {
		_ = w.write(append([]byte{frameError}, err.Error()...))
		return nil, 0, err
	}
	b, err := w.receive(frameHello, helloMost)
	if err != nil {
		return refuse(err) // one with another key learns so from the sum
	}
	if err := m.whose(conn); err != nil {
		return refuse(err)
	}
	rank, list, err := parseHello(b)
	switch {
	case err != nil:
		return refuse(err)
	case len(list) == 0 || !slices.Equal(list[1:], m.cfg.Addresses[1:]): // the first may have several names, and was found
		return refuse(fmt.Errorf("the lists of addresses differ: rank %d has %d (%s), rank 0 has %d (%s)", rank, len(list), strings.Join(list, ","), len(m.cfg.Addresses), strings.Join(m.cfg.Addresses, ",")))
	case rank < 1 || rank >= len(list):
		return refuse(fmt.Errorf("found rank %d, expected 1 to %d, for there are %d addresses, and rank 0 is here", rank, len(list)-1, len(list)))
	}
	alive(conn)
	return w, rank, conn.SetDeadline(time.Time{})
}

func (m *Meeting) hello() []byte {
	w := pack.NewWriter(256)
	w.Array(2)
	w.Uint(uint64(m.cfg.Rank))
	w.Array(len(m.cfg.Addresses))
	for _, a := range m.cfg.Addresses {
		w.String(a)
	}
	return append([]byte{frameHello}, w.Bytes()...)
}

func parseHello(b []byte) (rank int, list []string, err error) {
	r := pack.NewReader(b)
	if r.Array() != 2 {
		r.Fail()
	}
	rank = int(r.Below(1 << 31))
	for range r.Array() {
		list = append(list, r.String())
	}
	return rank, list, r.End()
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
			return fmt.Errorf("rank 0 has not answered at %s within %v: %w", at, m.cfg.Timeout, plain(err))
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
	if err := w.write(m.hello()); err != nil {
		return err
	}
	alive(conn)
	w.limit(m.cfg.Timeout + grace)
	_, err = w.receive(frameGo, helloMost)
	return gone(err)
}

// alive has the kernel notice within half a minute that the other end's host has vanished.
func alive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
}

// whose refuses processes of other users on this host, where there is no key that tells.
func (m *Meeting) whose(conn net.Conn) error {
	if m.cfg.Key != nil {
		return nil
	}
	here, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return err
	}
	there, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	if there.Addr().Unmap() != here.Addr().Unmap() && !there.Addr().Unmap().IsLoopback() {
		return nil
	}
	var kernel peer.Kernel
	uid, err := kernel.Owner(there, here)
	if err != nil {
		return nil // a sandbox whose kernel does not tell
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("the process at %s belongs to user %d, and this one to %d: give all members the same key", there, uid, os.Geteuid())
	}
	return nil
}

// plain is the reason in an error of package net: the address is known.
func plain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if sys, ok := errors.AsType[*os.SyscallError](op.Err); ok {
			return sys.Err
		}
		return op.Err
	}
	return err
}

// gone is err, where a connection has ended without a word said plainly.
func gone(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is gone: its connection has ended (%w)", plain(err))
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
			_ = w.write(append([]byte{frameError}, err.Error()...))
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
	stop()
	if err == nil {
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
	if m.cfg.Rank == 0 {
		all := make([][]byte, len(m.wires))
		all[0] = slices.Clone(card)
		if err := m.each(func(rank int, w *wire) error {
			var err error
			all[rank], err = w.receive(frameCard, cardMost)
			return err
		}); err != nil {
			return nil, err
		}
		out := pack.NewWriter(1024)
		out.Array(len(all))
		for _, c := range all {
			out.Bin(c)
		}
		cards := append([]byte{frameCard}, out.Bytes()...)
		return all, m.each(func(_ int, w *wire) error { return w.write(cards) })
	}
	if err := m.wires[0].write(own); err != nil {
		return nil, fmt.Errorf("%s: %w", m.name(0), gone(err))
	}
	b, err := m.wires[0].receive(frameCard, cardsMost)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name(0), gone(err))
	}
	r := pack.NewReader(b)
	all := make([][]byte, 0, len(m.cfg.Addresses))
	for range min(r.Array(), len(m.cfg.Addresses)) {
		all = append(all, r.Bin())
	}
	if err := r.End(); err != nil || len(all) != len(m.cfg.Addresses) {
		return nil, fmt.Errorf("%s: %d cards of %d: %w", m.name(0), len(all), len(m.cfg.Addresses), errors.Join(err, errStranger))
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
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- m.Barrier(within) }()
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
			next, err := serve()
			if err != nil {
				cancel(err)
				return <-done
			}
			timer.Reset(next)
		}
	}
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
