// Command gorun-offload is the daemon of gorun --offload: it steps the started collectives of a
// host's ranks while they compute. gorun starts one on each host, before the ranks, with the
// ranks' shared segment as descriptor 3, and ends it after them. It is of no use by itself.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/endsignal"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// segmentFD is the descriptor of the segment.
const segmentFD = 3

func main() {
	flags := pflag.NewFlagSet("gorun-offload", pflag.ExitOnError)
	ranks := flags.Int("ranks", 0, "ranks of the host")
	threads := flags.Int("threads", 1, "threads of the daemon")
	shown := flags.Bool("version", false, "print the version")
	_ = flags.Parse(os.Args[1:]) // it ends the program itself
	if *shown {
		fmt.Println(version.Line("gorun-offload"))
		return
	}
	endsignal.Leave()
	if err := serve(*ranks, *threads); err != nil {
		fmt.Fprintf(os.Stderr, "gorun-offload: %v\n", err)
		os.Exit(1)
	}
}

// serve steps calls until gorun ends the process.
func serve(ranks, threads int) error {
	segment, err := shm.Open(segmentFD)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w; gorun --offload starts this program", segmentFD, err)
	}
	visitor, err := soft.Visit(segment)
	if err != nil {
		return err
	}
	d, err := coll.NewDaemon(coll.DaemonConfig{Segment: segment, Ranks: ranks, Threads: threads, Memory: visitor.Peer,
		Log: func(line string) { fmt.Fprintf(os.Stderr, "gorun-offload: %s\n", line) }})
	if err != nil {
		return err
	}
	d.Run(context.Background())
	return nil
}
