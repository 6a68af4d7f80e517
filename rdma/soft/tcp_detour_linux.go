package soft

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// Connections that this host cannot make itself, as a firewall may have it, are carried by whoever listens at Config.Detour, of
// the same machine. It is asked with a line, and answers with one (launcher/internal/agent, detour.go):
//
//	to IP:port   ->  direct     it can connect to it, so this process can
//	                 carried    what follows goes there
//	                 no REASON
//	try IP:port  ->  direct, or closed: nothing is carried
//
// A peer that is greeted over such a connection connects back itself, if it can, and refuses the connection.
const (
	detourAfter = time.Second      // a try to connect
	detourLimit = 15 * time.Second // an answer
)

// errClosed: a connection cannot be made directly.
var errClosed = errors.New("it is not reached directly")

// reach connects to the listener of a peer. begun is told of each connection that is begun.
func (n *network) reach(address string, begun func(*os.File)) (c *os.File, isCarried bool, err error) {
	at, err := parseAddress(address)
	if err != nil || n.p.cfg.Detour == "" || at.Addr().IsLoopback() {
		c, err = dial(address, handshakeLimit, begun)
		return c, false, err
	}
	if c, err = dial(address, detourAfter, begun); err == nil || errors.Is(err, os.ErrClosed) {
		return c, false, err
	}
	c, answer, failed := n.ask("to", at, begun)
	switch {
	case failed != nil:
		return nil, false, err
	case answer == "carried":
		return c, true, nil
	}
	c.Close()
	if answer == "direct" {
		c, err = dial(address, handshakeLimit, begun)
		return c, false, err
	}
	return nil, false, err
}

// ask asks at the detour.
func (n *network) ask(what string, at netip.AddrPort, begun func(*os.File)) (c *os.File, answer string, err error) {
	if c, err = dial(n.p.cfg.Detour, handshakeLimit, begun); err != nil {
		return nil, "", err
	}
	if err = c.SetDeadline(time.Now().Add(detourLimit)); err == nil {
		_, err = io.WriteString(c, what+" "+at.String()+"\n")
	}
	var b [1]byte
	for err == nil && len(answer) < 200 && !strings.HasSuffix(answer, "\n") {
		if _, err = io.ReadFull(c, b[:]); err == nil { // no byte of what comes behind it
			answer += string(b[:])
		}
	}
	if err != nil {
		c.Close()
		return nil, "", err
	}
	return c, strings.TrimSuffix(answer, "\n"), nil
}

// callBack begins to connect to a peer that could not connect to this process, and tells whether that is possible. A connection
// that was begun so and has not become a link soon is not waited for.
func (n *network) callBack(from rdma.GID) bool {
	s := n.p.find(from)
	if s == nil || s.ep.address == "" || n.p.cfg.Detour == "" {
		return false
	}
	now := time.Now().UnixNano()
	if !s.called.CompareAndSwap(0, now) {
		return time.Duration(now-s.called.Load()) < handshakeLimit
	}
	at, err := parseAddress(s.ep.address)
	if err == nil {
		var c *os.File
		var answer string
		if c, answer, err = n.ask("try", at, func(*os.File) {}); err == nil {
			c.Close()
			if answer != "direct" {
				err = errClosed
			}
		}
	}
	if err != nil {
		s.called.Store(1) // long ago
		return false
	}
	n.dial(s)
	return true
}
