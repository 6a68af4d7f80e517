//go:build !linux

package soft

import (
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// network is the TCP half of a provider, which needs epoll.
type network struct {
	address string
	port    uint16
	secure  Handshake
	p       *Provider
	corked  corked
	buf     []byte
	records []byte
}

// vectors is tcp_socket_unsafe_linux.go's.
type vectors struct{}

func newNetwork(*Provider, []byte, Handshake) (*network, error) {
	return nil, &rdma.OpError{Op: "soft.New", Detail: "TCP links need Linux", Err: rdma.ErrNotSupported}
}

func (n *network) dial(s *peer) *link                              { return nil }
func (n *network) poll() (moved, looked bool)                      { return false, false }
func (n *network) look(bool) (moved, looked bool)                  { return false, false }
func (n *network) few() bool                                       { return false }
func (n *network) rest()                                           {}
func (n *network) flushAll()                                       {}
func (n *network) settle()                                         {}
func (n *network) close()                                          {}
func (l *link) watch(bool)                                         {}
func (l *link) toSocket([][]byte) (int, error)                     { return 0, rdma.ErrNotSupported }
func (l *link) fromSocket([]byte) (int, bool)                      { return 0, true }
func (l *link) scatterSocket(a, b []byte) (k int, end, fault bool) { return 0, true, false }
func (l *link) unheard(time.Duration, uint8) bool                  { return false }

func (l *link) shutdown() {}
