// Command attack attacks gorun: it kills what belongs to jobs at random times and
// looks for what stays, has ranks die on several hosts and looks whether gorun
// names the right one, and floods the ports of PMI, PMIx, metrics and gossip and looks
// whether the job ends well in its time and in bounded memory. One wrong result makes its status 1. `make attack SEED=n`
// builds what it needs and runs it; the same seed makes the same choices, though
// not the same moments.
//
//	attack -bin bin -seed 1 -kills 1000 -causes 300 -floods 100
//
// Each job has a marker in its environment and a directory of its own for its job
// directories, and, where that can be had, a control group of its own (cgroup.procs
// of the unified hierarchy): what is found there after the job has been left behind.
//
// Called with --victim it is the program of a rank that dies (victim.go), with --flood
// what floods a port (floods.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// attack is one kind of attack: so many rounds of it, each with random choices of
// its own, which says what was wrong.
type attack struct {
	name   string
	rounds int
	round  func(*bench, *rand.Rand, int) error
}

// bench is what all rounds share.
type bench struct {
	bin   string   // where gorun is
	self  string   // this program
	mpich string   // a program of MPICH that runs for 0.1 s; "": it could not be built
	ompi  string   // the same of Open MPI
	dir   string   // in shared memory: job directories
	group string   // this command's control group; "": none
	env   []string // of all jobs

	mu    sync.Mutex
	count map[string]int // of what was done, for the summary
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--victim" {
		os.Exit(victim(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "--flood" {
		os.Exit(floodMain(os.Args[2:]))
	}
	os.Exit(run())
}

func run() int {
	bin := flag.String("bin", "bin", "where gorun, gorun-agent and gorun-pmix are")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all choices")
	kills := flag.Int("kills", 100, "jobs of which random processes are killed")
	causes := flag.Int("causes", 100, "jobs over several hosts of which a rank dies")
	floods := flag.Int("floods", 100, "jobs of which a port is flooded")
	jobs := flag.Int("j", 2, "jobs at a time")
	flag.Parse()
	b, err := newBench(*bin)
	if err != nil {
		fmt.Fprintf(os.Stderr, "attack: %v\n", err)
		return 2
	}
	defer b.close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	fmt.Printf("attack: seed %d; control groups: %v; MPICH: %v; Open MPI: %v\n", *seed, b.group != "", b.mpich != "", b.ompi != "")
	status := 0
	for _, a := range []attack{
		{"kills", *kills, (*bench).kill},
		{"causes", *causes, (*bench).cause},
		{"floods", *floods, (*bench).flood},
	} {
		started := time.Now()
		wrong, done := b.all(ctx, a, *seed, *jobs)
		fmt.Printf("attack: %s: %d of %d wrong, %v; %v\n", a.name, wrong, done, time.Since(started).Round(time.Second), b.count)
		clear(b.count)
		if wrong > 0 || done < a.rounds {
			status = 1
		}
	}
	if err := b.left(); err != nil {
		fmt.Printf("attack: after all: %v\n", err)
		status = 1
	}
	return status
}

// all runs the rounds of an attack, some at a time, and counts the wrong ones.
func (b *bench) all(ctx context.Context, a attack, seed uint64, jobs int) (wrong, done int) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for i := range next {
				err := a.round(b, rand.New(rand.NewPCG(seed, uint64(i))), i)
				b.mu.Lock()
				done++
				if err != nil {
					wrong++
					fmt.Printf("attack: %s %d, seed %d: %v\n", a.name, i, seed, err)
				}
				b.mu.Unlock()
			}
		})
	}
	for i := 0; i < a.rounds && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	return wrong, done
}

// did counts something for the summary.
func (b *bench) did(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[what]++
}

// newBench makes the place for jobs.
func newBench(bin string) (*bench, error) {
	b := &bench{count: make(map[string]int)}
	var err error
	if b.bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(b.bin, "gorun")); err != nil {
		return nil, fmt.Errorf("%w; make build makes it", err)
	}
	base := "/dev/shm"
	if err := syscall.Access(base, 2); err != nil { // W_OK
		base = os.TempDir()
	}
	if b.dir, err = os.MkdirTemp(base, "gorun-attack-"); err != nil {
		return nil, err
	}
	b.env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	b.group = makeGroup(ownGroup(), filepath.Base(b.dir))
	b.mpich = b.compile("mpicc.mpich", "stay-mpich")
	b.ompi = b.compile("mpicc.openmpi", "stay-openmpi")
	return b, nil
}

// close removes what newBench made.
func (b *bench) close() {
	_ = os.RemoveAll(b.dir)
	if b.group != "" {
		_ = os.Remove(b.group)
	}
}

// left tells what all jobs together have left.
func (b *bench) left() error {
	if b.group == "" {
		return nil
	}
	return emptyGroup(b.group)
}
