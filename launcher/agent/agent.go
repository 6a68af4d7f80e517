// Package agent is the program of an agent: it runs the ranks of one host of a
// job that package launcher runs from another process, and joins the job's other
// agents by gossip.
//
// It stands apart from package launcher so that a launcher does not link
// memberlist, which takes 0.7 ms to start. cmd/gorun-agent is this package as a
// command; a program that embeds the launcher runs that one, or calls [Main]
// itself and names itself in launcher.Agents.Command.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/endsignal"
	"github.com/gorun-mpi/gorun/internal/gossip"
	"github.com/gorun-mpi/gorun/internal/meet"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
	"github.com/gorun-mpi/gorun/launcher/internal/orphan"
)

// Main runs an agent: it runs the ranks of one host as the launcher at the other end
// of stdin and stdout requests. It returns the exit status of the process when that
// stream has ended and its ranks are gone. INT and TERM do not end it. The process must have no other children.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	endsignal.Leave()
	dog := agent.StartWatchdog(agent.WatchdogLimit, unix.SIGCONT)
	defer dog.Close()
	// Daemons that ranks leave become this process's children, and end with the job.
	orphans, adoptErr := orphan.Adopt()
	if adoptErr == nil {
		defer orphans.End()
	}
	if err := agent.Main(ctx, stdin, stdout, agent.Process{Session: os.Getenv("SSH_CONNECTION"), Listen: listen, Orphans: orphans, Dog: dog}); err != nil {
		// The launcher collects an agent's standard error.
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Relay runs a relay: it starts agents, on its host and by ssh on others, as the launcher at the other end of stdin and stdout
// requests, atOnce at a time and in the environment env. It returns the exit status of the process. The process must have no other children.
func Relay(stdin, stdout *os.File, env []string, atOnce int, lease time.Duration) int {
	endsignal.Leave()
	dog := agent.StartWatchdog(lease*5/4, unix.SIGKILL)
	defer dog.Close()
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // a write's error will do
	if err := agent.MainRelay(stdin, stdout, env, atOnce, lease); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Meet is a host's part in `gorun-info doctor HOST...`: it finds the address that the host would have in a job, listens
// there, and calls the other hosts, until stdin ends. It returns the exit status of the process.
func Meet(ctx context.Context, stdin io.Reader, stdout io.Writer) int {
	ctx, cancel := context.WithTimeoutCause(ctx, meetLimit, fmt.Errorf("not over within %v", meetLimit))
	defer cancel()
	err := meet.Serve(ctx, stdin, stdout, func(o meet.Order) (netip.Addr, string, error) {
		return agent.Way{Apart: true, Interface: o.Interface, Toward: o.Toward, Remote: o.Remote}.Address(os.Getenv("SSH_CONNECTION"))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// meetLimit is longer than whoever asks waits.
const meetLimit = time.Minute

// The launcher makes the key.
var _ [gossip.KeySize]byte = [agent.KeySize]byte{}

func listen(p agent.Place) (agent.Member, error) {
	var node *gossip.Node
	err := p.Ports.Bind(func(port int) (err error) {
		node, err = gossip.Listen(gossip.Config{Host: p.Host, Index: p.Index, Hosts: p.Hosts, Key: p.Key, Bind: netip.AddrPortFrom(p.At, uint16(port)).String(), Dial: p.Dial})
		return err
	})
	if err != nil {
		return nil, err
	}
	return member{node}, nil
}

// member is a gossip node as an agent sees it.
type member struct{ *gossip.Node }

func (m member) Join(ctx context.Context, addresses map[int]string) error {
	err := m.Node.Join(ctx, addresses)
	switch {
	case errors.Is(err, gossip.ErrClosed):
		return agent.ErrLeft
	case errors.Is(err, gossip.ErrLost):
		return fmt.Errorf("%w: %w", agent.ErrBereft, err)
	}
	return err
}
