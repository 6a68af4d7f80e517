//go:build cgo && linux

package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// A network is how this process reaches those of other hosts that know the same key.
type network struct {
	key     []byte
	address netip.Addr // of IPv4, that they reach this host by
	ports   ports.Range

	mu        sync.Mutex
	listeners map[string]net.Listener // by the names of the sockets of this machine
}

// newNetwork is as gorun-verbs has left it in the environment; nil: this process reaches this machine alone.
func newNetwork() (*network, error) {
	file := os.Getenv("GORUN_VERBS_KEY")
	if file == "" {
		return nil, nil
	}
	n := &network{listeners: map[string]net.Listener{}}
	var err error
	if n.key, err = comch.LoadKey(file); err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	if n.ports, err = ports.Parse(os.Getenv("GORUN_VERBS_TCP_PORTS")); err != nil {
		return nil, fmt.Errorf("--tcp-ports: %w", err)
	}
	list, err := reach.Here()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(a reach.Address) bool { return !a.Prefix.Addr().Is4() })
	if choice := os.Getenv("GORUN_VERBS_INTERFACE"); choice != "" {
		n.address, err = reach.Named(list, "--interface", choice)
		return n, err
	}
	first, err := reach.First(list, "an address of IPv4, or --interface NAME|CIDR")
	n.address = first.Prefix.Addr()
	return n, err
}

// places are where, in the order in which they are tried, the listener of that name takes connections of other hosts: its port
// of librdmacm's is no port of TCP, where the program may have another listener.
func (n *network) places(name string) (list [8]int) {
	first, count := 20000, 12768 // below the ports that the kernel gives to connections
	if n.ports.Len() > 0 {
		first, count = n.ports.First, n.ports.Len()
	}
	h := hmac.New(sha256.New, n.key)
	_, _ = io.WriteString(h, "gorun-verbs port "+name) // cannot fail
	sum := h.Sum(nil)
	for i := range list {
		list[i] = first + int(binary.BigEndian.Uint32(sum[4*i:])%uint32(count))
	}
	return list
}

// channel proves to both ends of a connection that they know the key and mean the listener of that name.
func (n *network) channel(name string) comch.Config {
	return comch.Config{Name: "gorun-verbs " + name, Key: n.key}
}

// alive has a connection end some seconds after its host is gone.
var alive = net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 5}

// anywhere is a socket's name without the user, who may have another number on another host.
func anywhere(socket string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(socket, "gorun-verbs/"), "/")
	return rest
}

// listen takes connections of other hosts for the socket of that name, in messages of so many bytes, until forget.
func (n *network) listen(socket string, size int) error {
	var l net.Listener
	var err error
	for _, port := range n.places(anywhere(socket)) {
		config := net.ListenConfig{KeepAliveConfig: alive}
		if l, err = config.Listen(context.Background(), "tcp4", netip.AddrPortFrom(n.address, uint16(port)).String()); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.listeners[socket] = l
	n.mu.Unlock()
	go func() {
		strangers := make(chan struct{}, 64) // that have proved nothing yet
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors, perhaps
				time.Sleep(10 * time.Millisecond)
				continue
			}
			select {
			case strangers <- struct{}{}:
			default:
				_ = c.Close()
				continue
			}
			go func() {
				far, err := comch.Secure(context.Background(), n.channel(anywhere(socket)), c, true)
				<-strangers
				if err != nil {
					return
				}
				near, err := again(func() (net.Conn, error) { return net.Dial("unixpacket", "@"+socket) })
				if err != nil {
					_ = far.Close()
					return
				}
				relay(near, far, size)
			}()
		}
	}()
	return nil
}

// forget ends what listen began.
func (n *network) forget(socket string) {
	n.mu.Lock()
	l := n.listeners[socket]
	delete(n.listeners, socket)
	n.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

// What a call tells in a packet of one byte where it reaches nobody.
const (
	saysNobody    = 0 // no listener has that port
	saysUnreached = 1 // its host does not answer
)

// call connects to the listener of that name at another host, and passes messages of so many bytes between it and near.
func (n *network) call(socket string, to netip.Addr, near net.Conn, size int) {
	far, err := n.dial(anywhere(socket), to)
	if err != nil {
		says := []byte{saysNobody}
		if !vacant(err) {
			fmt.Fprintf(os.Stderr, "gorun-verbs: no connection to %v: %v\n", to, err)
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
			says[0] = saysUnreached
		}
		// Its request first: the kernel drops what it is told where it has sent what nobody read.
		_, _ = near.Read(make([]byte, size))
		_, _ = near.Write(says) // the program may have given up
		_ = near.Close()
		return
	}
	relay(near, far, size)
}

// vacant tells whether nobody is at a place, or the listener has just ended there.
func vacant(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

// again connects, for half a second where nobody listens: perftest's server ends a listener, tells its client to connect
// once more, and then listens. With a card the client has the route resolved first.
func again(connect func() (net.Conn, error)) (c net.Conn, err error) {
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if c, err = connect(); err == nil || !vacant(err) || time.Since(begin) > 500*time.Millisecond {
			return c, err
		}
	}
}

// dial tries the listener's places.
func (n *network) dial(name string, to netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return again(func() (net.Conn, error) { return n.dialOnce(ctx, name, to) })
}

// dialOnce is a round of dial. Its error is what went wrong at a place where something listens, if something does.
func (n *network) dialOnce(ctx context.Context, name string, to netip.Addr) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: alive, Timeout: 8 * time.Second}
	var none, other error
	for _, port := range n.places(name) {
		c, err := dialer.DialContext(ctx, "tcp4", netip.AddrPortFrom(to, uint16(port)).String())
		if err == nil {
			if c, err = comch.Secure(ctx, n.channel(name), c, false); err == nil {
				return c, nil
			}
		}
		if vacant(err) {
			none = err
			continue
		}
		other = err
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			break // a host that is away, or a firewall
		}
	}
	return nil, cmp.Or(other, none)
}

// relay passes messages on, both ways, until both ends have ended. What an end has sent before it ended arrives.
func relay(near, far net.Conn, size int) {
	pass := func(from, to net.Conn) {
		b := make([]byte, size)
		for {
			if _, err := io.ReadFull(from, b); err != nil {
				return
			}
			if _, err := to.Write(b); err != nil {
				return
			}
		}
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		pass(near, far)
		_ = far.(interface{ CloseWrite() error }).CloseWrite() // a *tls.Conn; the other end closes then
	})
	pass(far, near)
	_ = near.Close()
	sender.Wait()
	_ = far.Close()
}
