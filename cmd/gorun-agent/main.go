// Gorun-agent runs the ranks of one host of a job. gorun starts it, one for each
// host, and tells it what to do on its standard input; it is of no use alone.
package main

import (
	"context"
	"os"

	"github.com/gorun-mpi/gorun/launcher/agent"
)

func main() { os.Exit(agent.Main(context.Background(), os.Stdin, os.Stdout)) }
