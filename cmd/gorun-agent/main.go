// Gorun-agent runs the ranks of one host of a job. gorun starts it, one for each
// host, and tells it what to do on its standard input; it is of no use alone.
// With --version it says which it is, and exits; with --relay N LEASE it starts the agents of several hosts; with --meet it is this host's part of gorun-info doctor.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/launcher/agent"
)

func main() {
	if len(os.Args) == 2 && (os.Args[1] == "--version" || os.Args[1] == "-V") {
		if _, err := fmt.Println(version.Line("gorun-agent")); err != nil {
			fmt.Fprintf(os.Stderr, "gorun-agent: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "--relay" {
		atOnce, err := strconv.Atoi(os.Args[2])
		if lease, wrong := time.ParseDuration(os.Args[3]); err == nil && wrong == nil && atOnce > 0 && lease > 0 {
			os.Exit(agent.Relay(os.Stdin, os.Stdout, os.Environ(), atOnce, lease))
		}
	}
	if len(os.Args) == 2 && os.Args[1] == "--meet" {
		os.Exit(agent.Meet(context.Background(), os.Stdin, os.Stdout))
	}
	os.Exit(agent.Main(context.Background(), os.Stdin, os.Stdout))
}
