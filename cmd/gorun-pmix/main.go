// Gorun-pmix is the PMIx server of one host of a job: Open MPI programs meet
// their launcher through it. gorun starts it when a rank first connects, and
// ends it; it is of no use alone. It is a program of its own because libpmix
// needs cgo, and gorun is a static binary.
//
// # What it does
//
// It inherits a socket to the host (package link has the frames) and the socket
// that the ranks connect to. It starts libpmix's server, which listens at a
// port of its own, and carries bytes between the ranks' connections and that
// port (relay.go), after a look at whose they are (package peer). Requests
// of libpmix to a launcher become frames (handler.go); it answers queries from the
// launcher's table of processes (query.go).
//
// # Who may connect
//
// A client of PMIx declares who it is, and libpmix believes it. So a connection
// is relayed only if the kernel says that its other end belongs to this user
// (package peer). Processes of one user can read each other's memory, so
// nothing is gained by telling them apart; one that belongs to another job is
// refused by libpmix, which knows only this job's namespaces. Those names are 64
// random bits that stand in environments alone, which other users cannot read:
// whoever finds libpmix's own port cannot name a namespace.
//
// # Goroutines
//
// main reads the host's frames; one accepts connections; two for each
// connection, which end with it; one for each Ping under way. None is waited for:
// the end of the host's stream, or KILL from the host, ends the process.
//
// With --probe it prints what libpmix it has found, as JSON, for gorun-info. With
// --try-mpi LIBRARY it is no server, but a rank of that MPI which begins and ends.
//
// # Exit status
//
// 0 when the host's stream ends, 1 when the server cannot be started or goes on
// no more, which was told in a frame before, 2 when something else than a host
// started it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/endsignal"
	"github.com/gorun-mpi/gorun/internal/pmix"
	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "--probe" {
		return probe(stdout)
	}
	if len(args) == 2 && args[0] == "--try-mpi" {
		if err := pmix.TryMPI(args[1]); err != nil {
			fmt.Fprintf(stderr, "gorun-pmix: %v\n", err)
			return 1
		}
		return 0
	}
	kind, err := unix.GetsockoptInt(link.ControlFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		fmt.Fprintln(stderr, "gorun-pmix: gorun starts this program when an Open MPI program runs; what it can do here: gorun-info pmi")
		return 2
	}
	unix.CloseOnExec(link.ControlFD)
	unix.CloseOnExec(link.ListenFD)
	unix.CloseOnExec(link.FirstFD)
	endsignal.Leave()
	h := newHelper(os.NewFile(link.ControlFD, "host"))
	if err := h.begin(); err != nil {
		h.send(&link.Message{Kind: link.Failed, Text: err.Error()})
		return 1
	}
	if err := h.obey(); err != nil {
		h.send(&link.Message{Kind: link.Failed, Text: err.Error()})
		return 1
	}
	return 0
}

// probe tells what there is, for gorun-info.
func probe(stdout io.Writer) int {
	l, err := pmix.Probe()
	report := link.Probe{Cgo: pmix.Cgo, Library: l.Path, Version: l.Version}
	if err != nil {
		report.Problem = err.Error()
	}
	if err := json.NewEncoder(stdout).Encode(report); err != nil {
		return 1
	}
	return 0
}

// begin makes the server of the first frame and lets ranks in.
func (h *helper) begin() error {
	m, err := h.next()
	if err != nil {
		return err
	}
	if m.Kind != link.Setup {
		return fmt.Errorf("%w: it begins with kind %d", link.ErrFrame, m.Kind)
	}
	if h.server, err = pmix.Start(m.Server.Dir, m.Server.Host, h); err != nil {
		return err
	}
	first := m.Server.Space.Name
	for {
		if err := h.register(m.Server.Space); err != nil {
			return err
		}
		if !m.Wait {
			break
		}
		if m, err = h.next(); err != nil {
			return err
		}
		if m.Kind != link.Setup {
			return fmt.Errorf("%w: kind %d where another namespace was to come", link.ErrFrame, m.Kind)
		}
	}
	address, err := h.server.Address(first)
	if err != nil {
		return err
	}
	r, err := newRelay(link.ListenFD, address)
	if err != nil {
		return err
	}
	h.relay = r
	rank, ferr := connection(link.FirstFD)
	h.send(&link.Message{Kind: link.Ready})
	refused := func(text string) { fmt.Fprintln(os.Stderr, "gorun-pmix: "+text) }
	if ferr == nil {
		r.enter(rank)
		go r.take(rank, refused)
	} else { // it may have been reset meanwhile: others are served
		refused(ferr.Error())
	}
	go r.accept(func(err error) {
		h.send(&link.Message{Kind: link.Failed, Text: err.Error()})
	}, refused)
	return nil
}

// obey takes the host's frames until its stream ends.
func (h *helper) obey() error {
	for {
		m, err := h.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch m.Kind {
		case link.Setup:
			err = h.register(m.Server.Space)
			if err == nil {
				h.send(&link.Message{Kind: link.Ready, ID: m.ID})
			}
		case link.Answer:
			h.answered(m)
		case link.Request:
			h.request(m)
		case link.Event:
			err = h.server.Deliver(m.Data)
		case link.Ping:
			var ended []chan struct{}
			if m.Wait {
				ended = h.relay.connected(m.Text)
			}
			go h.ping(m.ID, ended)
		case link.Drop:
			h.drop(m.Text)
		default:
			err = fmt.Errorf("%w: kind %d from the host", link.ErrFrame, m.Kind)
		}
		if err != nil {
			return err
		}
	}
}

// ping answers a ping when connections have ended and libpmix is not stuck.
func (h *helper) ping(id uint64, ended []chan struct{}) {
	for _, c := range ended {
		<-c
	}
	if err := h.server.Ping(); err != nil {
		h.send(&link.Message{Kind: link.Failed, Text: err.Error()})
		return
	}
	h.send(&link.Message{Kind: link.Pong, ID: id})
}
