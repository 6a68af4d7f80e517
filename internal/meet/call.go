package meet

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/tlskey"
)

// protocol is what the ends of a call by TCP speak.
const protocol = "gorun-meet/1"

// A challenge of a call by UDP is a nonce and its sum, and the answer another sum of the nonce.
const nonceSize = 16

// askEvery is how often a challenge is sent.
const askEvery = 250 * time.Millisecond

func sum(key []byte, what string, nonce []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(what))
	h.Write(nonce)
	return h.Sum(nil)
}

// A listener answers the calls of one host.
type listener struct {
	tcp     net.Listener
	udp     net.PacketConn
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func listen(key []byte, at netip.Addr, of ports.Range) (*listener, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("found a key of %d bytes, expected %d", len(key), KeySize)
	}
	tc, err := tlskey.Config(key, protocol, "", tlskey.Server)
	if err != nil {
		return nil, err
	}
	address := func(port int) string { return net.JoinHostPort(at.String(), strconv.Itoa(port)) }
	l := &listener{}
	if err := of.Bind(func(port int) (err error) { l.tcp, err = net.Listen("tcp", address(port)); return err }); err != nil {
		return nil, err
	}
	if err := of.Bind(func(port int) (err error) { l.udp, err = net.ListenPacket("udp", address(port)); return err }); err != nil {
		l.tcp.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	gate := make(chan struct{}, callsAtOnce)
	l.running.Go(func() {
		for {
			c, err := l.tcp.Accept()
			if err != nil {
				return
			}
			gate <- struct{}{}
			l.running.Go(func() {
				defer func() { <-gate }()
				defer c.Close()
				ctx, cancel := context.WithTimeout(ctx, Limit)
				defer cancel()
				_, _ = tlskey.Handshake(ctx, c, tc, tlskey.Server)
			})
		}
	})
	l.running.Go(func() {
		b := make([]byte, 2048)
		for {
			n, from, err := l.udp.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if n == nonceSize+sha256.Size && hmac.Equal(b[nonceSize:n], sum(key, "ask", b[:nonceSize])) {
				_, _ = l.udp.WriteTo(sum(key, "answer", b[:nonceSize]), from)
			}
		}
	})
	return l, nil
}

func (l *listener) ports() (tcp, udp int) {
	return l.tcp.Addr().(*net.TCPAddr).Port, l.udp.LocalAddr().(*net.UDPAddr).Port
}

func (l *listener) close() {
	l.cancel()
	l.tcp.Close()
	l.udp.Close()
	l.running.Wait()
}

// call calls a host both ways at once.
func call(ctx context.Context, key []byte, p Peer) (c Call) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		began := time.Now()
		if err := callTCP(ctx, key, net.JoinHostPort(p.Address, strconv.Itoa(p.TCP)), func() { c.Took = time.Since(began) }); err != nil {
			c.TCP = why(err)
		}
	})
	both.Go(func() {
		if err := callUDP(ctx, key, net.JoinHostPort(p.Address, strconv.Itoa(p.UDP))); err != nil {
			c.UDP = why(err)
		}
	})
	both.Wait()
	return c
}

func callTCP(ctx context.Context, key []byte, address string, connected func()) error {
	tc, err := tlskey.Config(key, protocol, "", tlskey.Client)
	if err != nil {
		return err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	connected()
	if _, err := tlskey.Handshake(ctx, c, tc, tlskey.Client); err != nil {
		return fmt.Errorf("connected, and then: %w", err)
	}
	return nil
}

func callUDP(ctx context.Context, key []byte, address string) error {
	c, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // which never fails
	ask, answer := append(nonce, sum(key, "ask", nonce)...), sum(key, "answer", nonce)
	b := make([]byte, 2048)
	var refused error
	for ctx.Err() == nil {
		if _, err := c.Write(ask); err != nil {
			refused = err // nothing listens there, or a firewall says no
		}
		_ = c.SetReadDeadline(time.Now().Add(askEvery))
		n, err := c.Read(b)
		if err == nil && hmac.Equal(b[:n], answer) {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			refused = err
			select {
			case <-time.After(askEvery):
			case <-ctx.Done():
			}
		}
	}
	if refused != nil {
		return refused
	}
	return ctx.Err()
}

// why is an error in few words.
func why(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", Limit)
	}
	if op, is := errors.AsType[*net.OpError](err); is {
		if call, is := errors.AsType[*os.SyscallError](op.Err); is {
			return call.Err.Error()
		}
		return op.Err.Error()
	}
	return err.Error()
}
