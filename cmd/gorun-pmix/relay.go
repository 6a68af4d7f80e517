package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/peer"
)

// relay carries bytes between ranks and libpmix, which the kernel does itself
// (splice): nothing is buffered here, a side that does not read makes the other
// wait, and the end of either direction is passed on as that.
type relay struct {
	listener *net.TCPListener
	libpmix  string
}

func newRelay(fd uintptr, libpmix string) (*relay, error) {
	file := os.NewFile(fd, "listener")
	defer file.Close() // FileListener has its own
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("descriptor %d listens at %s: want a TCP port", fd, l.Addr())
	}
	return &relay{tcp, libpmix}, nil
}

// accept serves connections until that is impossible, which failed is told.
// Connections that are refused go to refused.
func (r *relay) accept(failed func(error), refused func(string)) {
	for {
		c, err := r.listener.AcceptTCP()
		switch {
		case err == nil:
			go func() {
				if err := r.serve(c); err != nil {
					refused(err.Error())
				}
			}()
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			// Ranks that finalize give theirs back.
			time.Sleep(10 * time.Millisecond)
		case errors.Is(err, syscall.ECONNABORTED):
		default:
			failed(fmt.Errorf("accept a rank's connection: %w", err))
			return
		}
	}
}

// serve carries one connection to its end.
func (r *relay) serve(rank *net.TCPConn) error {
	defer rank.Close()
	if err := ours(rank.RemoteAddr(), rank.LocalAddr()); err != nil {
		return fmt.Errorf("a connection from %s is refused: %w", rank.RemoteAddr(), err)
	}
	c, err := net.Dial("tcp", r.libpmix)
	if err != nil {
		return fmt.Errorf("libpmix's port: %w", err)
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		carry(rank, server)
	}()
	carry(server, rank)
	<-back
	return nil
}

// carry copies one direction to its end and passes the end on. What cannot be
// written any more ends the other direction too.
func carry(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.CloseWrite()
}

// ours tells whether a rank's end of a connection belongs to this user.
func ours(rank, here net.Addr) error {
	uid, err := peer.Owner(rank.(*net.TCPAddr).AddrPort(), here.(*net.TCPAddr).AddrPort())
	if err != nil {
		return fmt.Errorf("cannot see whose it is: %w", err)
	}
	if want := os.Geteuid(); uid != want {
		return fmt.Errorf("it belongs to user %d, this job to user %d", uid, want)
	}
	return nil
}
