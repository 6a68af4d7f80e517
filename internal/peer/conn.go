package peer

import (
	"errors"
	"net"
	"os"
	"time"
)

// Alive has the kernel notice within half a minute that the host at the other end of a TCP connection has vanished.
func Alive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
}

// Reason is the innermost reason in an error of package net, for those who tell the address themselves.
func Reason(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if sys, ok := errors.AsType[*os.SyscallError](op.Err); ok {
			return sys.Err
		}
		return op.Err
	}
	return err
}
