package pmi

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// conn is what a client needs of a socket; I/O in progress ends when the
// deadline is moved into the past, or by Close.
type conn interface {
	Read(b []byte) (int, error)
	Write(b []byte) (int, error)
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	Close() error
}

// open gives the connection that env names, and a name for it.
func open(ctx context.Context, env Env) (conn, string, error) {
	if env.Port != "" {
		name := "PMI_PORT=" + env.Port
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", env.Port)
		if err != nil {
			return nil, name, fmt.Errorf("pmi: connect to the launcher at %s: %w", name, err)
		}
		return c, name, nil
	}
	name := "PMI_FD=" + strconv.Itoa(env.FD)
	if _, err := unix.GetsockoptInt(env.FD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, name, fmt.Errorf("pmi: %s is not a socket of a launcher (%w); was this program started by another program of the job? "+
			"Start it with gorun, or unset PMI_FD to run it alone", name, err)
	}
	// The rank's own children are not ranks: they must not hold its connection.
	unix.CloseOnExec(env.FD)
	// Non-blocking, so that reads heed deadlines.
	if err := unix.SetNonblock(env.FD, true); err != nil {
		return nil, name, fmt.Errorf("pmi: %s: set non-blocking: %w", name, err)
	}
	return os.NewFile(uintptr(env.FD), name), name, nil
}
