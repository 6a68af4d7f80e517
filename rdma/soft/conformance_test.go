//go:build linux

package soft_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/soft/softtls"
)

// The suite of package rdmatest over every way in which two contexts of this
// device can meet.

var jobSecret = []byte("a secret of this test and no job")

const arenaSize = 64 << 20

// lacking are the features that this device does not have.
var lacking []rdma.Feature

// idle ends what connections of the first node are idle.
func idle(first rdmatest.Node) { soft.Idle(first.Context()) }

// doorbells are those of an adversary.
var doorbells = &rdmatest.Doorbells{
	Lose: func(first rdmatest.Node, n int) { soft.LoseDoorbells(first.Context(), n) },
	Look: func(first rdmatest.Node) { soft.ReadRecords(first.Context()) },
}

// brief leaves out the cases that need many operations.
func brief() bool { return arch.RaceEnabled || testing.Short() }

// opened is a context with the provider under it.
func opened(t testing.TB, cfg soft.Config) rdma.Context {
	t.Helper()
	cfg.DCIdle = -1 // idle is their clock
	p, err := soft.New(cfg)
	if err != nil {
		t.Fatalf("soft.New: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return openDevice(t, p)
}

func openDevice(t testing.TB, p *soft.Provider) rdma.Context {
	t.Helper()
	devices, err := p.Devices()
	if err != nil || len(devices) == 0 {
		t.Fatalf("Devices: %d, %v", len(devices), err)
	}
	ctx, err := devices[0].Open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Errorf("close the context: %v", err)
		}
	})
	return ctx
}

// inSegment opens n nodes that meet in a segment of this process.
func inSegment(cfg soft.Config) func(testing.TB, int) []rdmatest.Node {
	return func(t testing.TB, n int) []rdmatest.Node {
		t.Helper()
		segment, err := shm.NewLocal(shm.Geometry{Ranks: n, ArenaSize: arenaSize})
		if err != nil {
			t.Fatalf("NewLocal: %v", err)
		}
		t.Cleanup(func() { closeSegment(t, segment) })
		nodes := make([]rdmatest.Node, n)
		for i := range nodes {
			cfg := cfg
			cfg.Segment, cfg.Rank, cfg.Host = segment, i, "here"
			if cfg.Adversary != nil { // each its own
				cfg.Adversary = &soft.Adversary{Seed: cfg.Adversary.Seed*100 + uint64(i)}
			}
			nodes[i] = rdmatest.Local(opened(t, cfg))
		}
		return nodes
	}
}

func closeSegment(t testing.TB, s *shm.Segment) {
	if err := s.Close(); err != nil {
		t.Errorf("close the segment: %v", err)
	}
}

// overTCP opens n nodes that each stand on a host of their own.
func overTCP(cfg soft.Config) func(testing.TB, int) []rdmatest.Node {
	return func(t testing.TB, n int) []rdmatest.Node {
		t.Helper()
		nodes := make([]rdmatest.Node, n)
		for i := range nodes {
			cfg := cfg
			cfg.Host, cfg.Secret, cfg.Listen = fmt.Sprintf("host%d", i), jobSecret, "127.0.0.1:0"
			if cfg.Adversary != nil {
				cfg.Adversary = &soft.Adversary{Seed: cfg.Adversary.Seed*100 + uint64(i)}
			}
			nodes[i] = rdmatest.Local(opened(t, cfg))
		}
		return nodes
	}
}

// childVar asks a process of this test binary to be a node: its value is the
// node's rank, and "shared" when the segment follows the connection.
const childVar = "GORUN_SOFT_TEST_NODE"

// TestConformanceNode is the other half of the tests across processes. Run as
// a test it is empty.
func TestConformanceNode(t *testing.T) {
	rank, how, asked := strings.Cut(os.Getenv(childVar), ",")
	if !asked {
		return
	}
	i, err := strconv.Atoi(rank)
	if err != nil {
		t.Fatal(err)
	}
	cfg := soft.Config{Host: "host" + rank, Secret: jobSecret}
	if how == "shared" {
		if cfg.Segment, err = shm.Open(rdmatest.ConnFD + 1); err != nil {
			t.Fatal(err)
		}
		cfg.Host, cfg.Rank, cfg.Secret = "here", i, nil
	}
	serve(t, cfg)
}

// serve has this process be a node, and ends it.
func serve(t *testing.T, cfg soft.Config) {
	p, err := soft.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := rdmatest.Serve(os.NewFile(rdmatest.ConnFD, "driver"), openDevice(t, p)); err != nil {
		t.Fatal(err)
	}
	os.Exit(0)
}

// child starts a process of this test binary as the node of a rank.
func child(t testing.TB, rank int, segment *shm.Segment) *rdmatest.Child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestConformanceNode$")
	how := "apart"
	if segment != nil {
		how = "shared"
		cmd.ExtraFiles = []*os.File{inherit(t, segment)}
	}
	// The race detector of a process knows nothing of an order that came about
	// through another process.
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,%s", childVar, rank, how), "GOMAXPROCS=2", "GORACE=report_bugs=0")
	return rdmatest.Start(t, cmd)
}

// inherit gives a copy of the segment's descriptor to hand to a process.
func inherit(t testing.TB, segment *shm.Segment) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(segment.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("copy the segment's descriptor: %v", err)
	}
	f := os.NewFile(uintptr(fd), "segment")
	t.Cleanup(func() { f.Close() })
	return f
}

// acrossProcesses opens the first node here and each other in a process of its
// own, all in one segment or all on their own hosts.
func acrossProcesses(shared bool) func(testing.TB, int) []rdmatest.Node {
	return func(t testing.TB, n int) []rdmatest.Node {
		t.Helper()
		cfg := soft.Config{Host: "host0", Secret: jobSecret}
		var segment *shm.Segment
		if shared {
			segment = createSegment(t, n)
			cfg = soft.Config{Segment: segment, Host: "here"}
		}
		nodes := []rdmatest.Node{rdmatest.Local(opened(t, cfg))}
		for i := 1; i < n; i++ {
			nodes = append(nodes, closing(t, child(t, i, segment)))
		}
		return nodes
	}
}

func createSegment(t testing.TB, ranks int) *shm.Segment {
	t.Helper()
	segment, err := shm.Create(shm.Geometry{Ranks: ranks, ArenaSize: arenaSize})
	if err != nil {
		t.Fatalf("shm.Create: %v", err)
	}
	t.Cleanup(func() { closeSegment(t, segment) })
	return segment
}

// closing closes the child's context when the test ends, before the child does.
func closing(t testing.TB, c *rdmatest.Child) *rdmatest.Child {
	t.Cleanup(func() {
		if err := c.Context().Close(); err != nil {
			t.Errorf("close the context of process %d: %v", c.PID(), err)
		}
	})
	return c
}

func TestConformance(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: inSegment(soft.Config{}), Brief: brief()})
}

func TestConformanceOrdinaryMemory(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: inSegment(soft.Config{}), Memory: rdmatest.Ordinary, Brief: true})
}

// inMotion are the groups in which an adversary finds something to do: those
// where requests are executed.
var inMotion = []string{"flush", "status", "signal", "inline", "transfer", "recv", "rnr", "ack", "atomic",
	"order", "cq", "dereg", "counters", "ability", "close", "map", "random",
	"iova", "rereg", "odp", "mw", "doorbell", "sva", "dmabuf", "mkey",
	"srq", "event", "channel", "cq_ex",
	"uc", "ud", "xrc",
	"inline_recv", "dc", "striding", "tag",
}

func TestConformanceAdversarial(t *testing.T) {
	seeds := uint64(3)
	if brief() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			rdmatest.Run(t, rdmatest.Fabric{
				Lacks: lacking, Idle: idle, Open: inSegment(soft.Config{Adversary: &soft.Adversary{Seed: seed}}), Adversarial: true, Doorbells: doorbells,
				Memory: rdmatest.MemoryKind(seed % 2), Brief: seed > 0 || brief(), Groups: inMotion,
			})
		})
	}
}

func TestConformanceTCP(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: overTCP(soft.Config{}), Brief: brief()})
}

func init() { soft.TLS = softtls.Handshake }

// overTLS are the groups that are run over TLS. What is above the link the tests over
// TCP have: with -short they are those that fill it.
func overTLS(all []string) []string {
	if brief() {
		return []string{"transfer", "order", "ack", "dereg", "close", "random", "ud", "dc", "tag"}
	}
	return all
}

func TestConformanceTLS(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: overTCP(soft.Config{Secure: softtls.Handshake}), Brief: brief(), Groups: overTLS(nil)})
}

func TestConformanceTLSAdversarial(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: overTCP(soft.Config{Secure: softtls.Handshake, Adversary: &soft.Adversary{Seed: 7}}), Adversarial: true, Doorbells: doorbells, Brief: true, Groups: overTLS(inMotion)})
}

// oneHostAmongMany opens the first node on a host of its own and the others in
// one segment of another.
func oneHostAmongMany(t testing.TB, n int) []rdmatest.Node {
	t.Helper()
	nodes := overTCP(soft.Config{})(t, 1)
	segment, err := shm.NewLocal(shm.Geometry{Ranks: max(n-1, 1), ArenaSize: arenaSize})
	if err != nil {
		t.Fatalf("NewLocal: %v", err)
	}
	t.Cleanup(func() { closeSegment(t, segment) })
	for i := 1; i < n; i++ {
		nodes = append(nodes, rdmatest.Local(opened(t, soft.Config{Segment: segment, Rank: i - 1, Host: "there", Secret: jobSecret})))
	}
	return nodes
}

func TestConformanceTwoHosts(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: oneHostAmongMany, Brief: true, Groups: []string{"srq", "ud", "xrc", "dc"}})
}

func TestConformanceTCPAdversarial(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: overTCP(soft.Config{Adversary: &soft.Adversary{Seed: 7}}), Adversarial: true, Doorbells: doorbells, Brief: true, Groups: inMotion})
}

// afar are the groups that are run across processes: all, but in race builds,
// where each process takes a second to start and the detector sees only one
// of them, those with the most concurrency. Over TCP it takes what a peer's
// completion ordered, in the peer's process, for a race. With -short they are those in
// which processes meet: TestConformance and TestConformanceTCP have all in one process.
func afar(shared bool) []string {
	meets := []string{"process", "transfer", "order", "dereg", "close", "srq", "ud", "xrc", "dc", "tag"}
	switch {
	case !arch.RaceEnabled && testing.Short() && shared:
		return append(meets, "access", "atomic", "mw", "mkey", "recv", "rnr", "ack", "event", "sva", "random")
	case !arch.RaceEnabled && testing.Short():
		return meets
	case !arch.RaceEnabled:
		return nil
	case shared:
		return []string{"transfer", "dereg", "close", "process"}
	}
	return []string{"dereg", "close", "process"}
}

func TestConformanceProcesses(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: acrossProcesses(true), Processes: true, Brief: brief(), Groups: afar(true)})
}

func TestConformanceProcessesTCP(t *testing.T) {
	rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Idle: idle, Open: acrossProcesses(false), Processes: true, Brief: true, Groups: afar(false)})
}

// kills opens two nodes here and a victim, in one segment or over TCP.
func kills(shared, told bool) func(testing.TB) (rdmatest.Node, rdmatest.Node, rdmatest.Victim, func()) {
	return func(t testing.TB) (rdmatest.Node, rdmatest.Node, rdmatest.Victim, func()) {
		t.Helper()
		const survivor, bystander, victim = 0, 1, 2
		var segment *shm.Segment
		var dead func()
		cfg := func(rank int) soft.Config {
			if shared {
				return soft.Config{Segment: segment, Rank: rank, Host: "here"}
			}
			return soft.Config{Host: fmt.Sprintf("host%d", rank), Secret: jobSecret}
		}
		if shared {
			segment = createSegment(t, 3)
			if told {
				dead = func() { segment.SetDead(victim) }
			}
		}
		s, b := rdmatest.Local(opened(t, cfg(survivor))), rdmatest.Local(opened(t, cfg(bystander)))
		return s, b, child(t, victim, segment), dead
	}
}

func TestConformanceKills(t *testing.T) {
	for i, f := range []struct {
		name         string
		shared, told bool
		memory       rdmatest.MemoryKind
		rounds       int
	}{
		{"told", true, true, rdmatest.Allocated, 20},
		{"untold", true, false, rdmatest.Allocated, 20},
		{"ordinary", true, true, rdmatest.Ordinary, 12},
		{"tcp", false, false, rdmatest.Allocated, 8},
	} {
		if arch.RaceEnabled {
			f.rounds /= 4 // see afar
		}
		t.Run(f.name, func(t *testing.T) {
			rdmatest.RunKills(t, rdmatest.KillFabric{Open: kills(f.shared, f.told), Memory: f.memory,
				Rounds: f.rounds, Seed: uint64(i), Budget: 4 * time.Second})
		})
	}
}

// floods opens a survivor here, and victims in processes of their own, each in
// a place of its own: of one segment, or over TCP. So few responders for dynamic
// connections are soon all with the dead.
func floods(kills int, shared bool) func(testing.TB) (rdmatest.Node, func(int) (rdmatest.Victim, func())) {
	return func(t testing.TB) (rdmatest.Node, func(int) (rdmatest.Victim, func())) {
		t.Helper()
		cfg := soft.Config{Host: "host0", Secret: jobSecret, DCResponders: 4}
		if !shared {
			return rdmatest.Local(opened(t, cfg)), func(i int) (rdmatest.Victim, func()) { return child(t, i+1, nil), nil }
		}
		segment, err := shm.Create(shm.Geometry{Ranks: kills + 8, ArenaSize: 1 << 20})
		if err != nil {
			t.Fatalf("shm.Create: %v", err)
		}
		t.Cleanup(func() { closeSegment(t, segment) })
		cfg.Segment, cfg.Host, cfg.Secret = segment, "here", nil
		return rdmatest.Local(opened(t, cfg)), func(i int) (rdmatest.Victim, func()) {
			return child(t, i+1, segment), func() { segment.SetDead(i + 1) }
		}
	}
}

// Processes are killed in the middle of whatever they do to receive queues of every
// kind, and to completion queues.
func TestConformanceFloodKills(t *testing.T) {
	for _, f := range []struct {
		name   string
		shared bool
		kills  int
	}{{"segment", true, 500}, {"tcp", false, 50}} {
		if brief() {
			f.kills = 20 // see afar
		}
		t.Run(f.name, func(t *testing.T) {
			rdmatest.RunFlood(t, rdmatest.FloodFabric{Open: floods(f.kills, f.shared), Kills: f.kills, Seed: 1})
		})
	}
}

// Processes are killed in the middle of matches and of rendezvous.
func TestConformanceTagKills(t *testing.T) {
	kills := 150
	if brief() {
		kills = 15 // see afar
	}
	rdmatest.RunTagFlood(t, rdmatest.FloodFabric{Open: floods(kills, true), Kills: kills, Seed: 2})
}
