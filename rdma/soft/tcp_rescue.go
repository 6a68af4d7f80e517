package soft

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// What is here makes TCP links between two providers of a segment that were given no
// secret, because the kernel keeps one from the ordinary memory of the other: a
// seccomp filter, Yama, another user namespace. Only the requester finds that out, and
// only its peer can listen. A requester to which the kernel refuses every process says so
// in its arena, and a process that adds its endpoint listens at once. One that is refused this
// peer alone finds it out by trying, and calls the peer through the peer's arena:
//
//	requester: wanted = 1 in the peer's arena, and rings its bell and its alarm
//	peer, at its next poll: listens on 127.0.0.1; secret, then port in its own arena
//	requester, which looks every few milliseconds: dials
//
// Any process of the segment may read the secret there. It may also do, by way of the
// segment, all that a link can ask for. A peer that never polls is waited for as long
// as it lives.

var (
	errNotYet  = errors.New("the peer does not listen yet")
	errNowhere = errors.New("the peer does not listen")
)

// callable tells whether both sides were given a secret, or neither was and both are in
// one network. Where they are not, what goes to the segment still gets there.
func (s *peer) callable() bool {
	if s.p.cfg.Secret != nil || s.ep.address != "" {
		return s.p.cfg.Secret != nil && s.ep.address != ""
	}
	theirs, ours := at[arenaHeader](s.arena, 0).network, s.p.head.network
	return theirs == ours || theirs == 0 || ours == 0
}

// refused tells whether the kernel lets this process read, or write, no process, not even
// itself, as a seccomp filter does. A peer's check of what it writes finds it unchanged.
func (p *Provider) refused() bool {
	got, at := *p.probe, addressOf(p.probe[:])
	return readProcess(p.pid, got[:], at) != nil || writeProcess(p.pid, got[:], at) != nil
}

// refused tells whether the peer found so.
func (s *peer) refused() bool { return atomic.LoadUint32(&at[arenaHeader](s.arena, 0).refused) == 1 }

// called tells whether a peer wants this provider to listen. Nothing is ordered by
// the load: the process that answers the call reads nothing that the caller wrote.
func (p *Provider) called() bool { return atomic.LoadUint32(&p.head.wanted) == 1 }

// answerCall listens, and says so in the own arena, or says that it cannot.
func (p *Provider) answerCall() {
	atomic.StoreUint32(&p.head.wanted, 0)
	// Where the configuration has a secret, the endpoint says where to dial.
	if err := p.openNetwork(); err != nil || p.cfg.Secret != nil {
		atomic.CompareAndSwapUint32(&p.head.port, 0, portNone)
	}
}

// openNetwork gives the provider its TCP half, if it has none, and publishes where it
// listens. With a secret of the configuration there is one from the beginning, which
// is published in the endpoint alone.
func (p *Provider) openNetwork() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &rdma.OpError{Op: "listen for TCP links", Detail: "the provider is closed", Err: rdma.ErrNoDevice}
	}
	if p.tcp.Load() != nil {
		return nil
	}
	secret := make([]byte, len(p.head.secret))
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("listen for TCP links: a secret: %w", err)
	}
	n, err := newNetwork(p, secret, nil)
	if err != nil {
		return err
	}
	p.tcp.Store(n)
	copy(p.head.secret[:], secret)
	// The secret is stored before the port: a process that sees the port sees the secret.
	atomic.StoreUint32(&p.head.port, uint32(n.port))
	return nil
}

// listener is where the peer is dialled, and with which secret. errNotYet: it has been
// called, and will listen at its next poll.
func (s *peer) listener() (address string, secret []byte, err error) {
	if s.ep.address != "" {
		return s.ep.address, s.p.cfg.Secret, nil
	}
	h := at[arenaHeader](s.arena, 0)
	if atomic.LoadUint64(&h.magic) != arenaMagic || h.nonce != s.ep.nonce {
		return "", nil, errNowhere // its life in this arena is over
	}
	switch port := atomic.LoadUint32(&h.port); {
	case port == 0:
		atomic.StoreUint32(&h.wanted, 1)
		s.bell.Ring()
		s.alarm.Ring()
		return "", nil, errNotYet
	case port < portNone:
		said := h.secret // ordered after the load of the port
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String(), said[:], nil
	}
	return "", nil, errNowhere
}
