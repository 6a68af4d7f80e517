package group

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func quiet() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A member of a test's group: options without the configuration, and which member its
// addresses are.
type member struct {
	kind    Kind
	names   []int
	clients int
	want    int
}

// options gives each member a listener and addresses.
func options(t *testing.T, c Config, key []byte, members []member) []Options {
	all := make([]Options, len(members))
	where := make([]string, len(members))
	for i, m := range members {
		all[i] = Options{Config: c, Kind: m.kind, Clients: m.clients, Participants: m.want, Key: key, Timeout: 20 * time.Second, Log: quiet(), SDK: quiet()}
		if m.kind.participant() {
			all[i].Listener = listen(t)
			where[i] = all[i].Listener.Addr().String()
		}
	}
	for i, m := range members {
		for _, k := range m.names {
			all[i].Addresses = append(all[i].Addresses, where[k])
		}
	}
	return all
}

// filled is a vector, distinct for each client, operation and element.
func filled(c *Config, client int, op uint64) []byte {
	rnd := rand.New(rand.NewPCG(uint64(client), op))
	b := make([]byte, 0, c.Bytes())
	for range c.Size {
		switch c.Type {
		case "byte":
			b = append(b, byte(rnd.Uint32()))
		case "int":
			b = binary.LittleEndian.AppendUint32(b, rnd.Uint32())
		case "float":
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(rnd.Float32()*2-1))
		case "double":
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(rnd.Float64()*2-1))
		}
	}
	return b
}

// work runs all operations of a client, and gives all results.
func work(s *Session, c *Config, client int) (results [][]byte, err error) {
	vectors := s.Vectors()
	for _, n := range []int{NetworkBatches, c.Batches, 0} {
		var digest []byte
		if n == 0 {
			digest = results[len(results)-1][:1]
		}
		if err := s.Barrier(digest); err != nil {
			return nil, err
		}
		for range n {
			for i, v := range vectors {
				copy(v, filled(c, client, uint64(len(results)+i)))
			}
			if err := s.Batch(func() {}); err != nil {
				return nil, err
			}
			for _, v := range vectors {
				results = append(results, bytes.Clone(v))
			}
		}
	}
	return results, nil
}

// outcome is what came out of a member.
type outcome struct {
	results [][]byte
	err     error
}

// run runs all members to their end.
func run(ctx context.Context, all []Options) []outcome {
	out := make([]outcome, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		wg.Go(func() { out[i].results, out[i].err = one(ctx, i, o) })
	}
	wg.Wait()
	return out
}

// one runs a member to its end.
func one(ctx context.Context, i int, o Options) (results [][]byte, err error) {
	s, err := Form(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.Kind == Daemon {
		_, err = s.Serve()
	} else {
		results, err = work(s, &o.Config, i)
	}
	return results, errors.Join(err, s.Close())
}

// inOrder is what the results must be: the vectors combined one after the other; exact
// but for floats.
func inOrder(c *Config, clients []int, op uint64) []byte {
	sum := filled(c, clients[0], op)
	for _, k := range clients[1:] {
		c.Reduction().Func(sum, sum, filled(c, k, op))
	}
	return sum
}

func near(c *Config, got, want []byte) bool {
	if c.Type != "float" && c.Type != "double" {
		return bytes.Equal(got, want)
	}
	for i := range c.Size {
		var a, b float64
		if c.Type == "float" {
			a, b = float64(math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))), float64(math.Float32frombits(binary.LittleEndian.Uint32(want[4*i:])))
		} else {
			a, b = math.Float64frombits(binary.LittleEndian.Uint64(got[8*i:])), math.Float64frombits(binary.LittleEndian.Uint64(want[8*i:]))
		}
		if math.Abs(a-b) > 1e-5*(1+math.Abs(b)) {
			return false
		}
	}
	return true
}

// check holds all clients' results against the obvious ones, and against each other.
func check(t *testing.T, all []Options, out []outcome) {
	t.Helper()
	var clients []int
	for i, o := range out {
		if o.err != nil {
			t.Fatalf("member %d (%s): %v", i, all[i].Kind, o.err)
		}
		if all[i].Kind != Daemon {
			clients = append(clients, i)
		}
	}
	c := &all[0].Config
	for op := range uint64((NetworkBatches + c.Batches) * c.Batch) {
		want := inOrder(c, clients, op)
		for _, k := range clients {
			got := out[k].results[op]
			if !near(c, got, want) {
				t.Fatalf("%s: client %d, operation %d: wrong result", c, k, op)
			}
			if !bytes.Equal(got, out[clients[0]].results[op]) {
				t.Fatalf("%s: operation %d: clients %d and %d have different bits", c, op, k, clients[0])
			}
		}
	}
}

func config(size int, typ, op, algorithm string) Config {
	return Config{Size: size, Type: typ, Operation: op, Batch: 5, Batches: 2, Algorithm: algorithm}
}

// chain is n non-offloaded clients of which each names the one before.
func chain(n int) []member {
	all := make([]member, n)
	for i := range all {
		all[i].kind = Direct
		if i > 0 {
			all[i].names = []int{i - 1}
		}
	}
	return all
}

// counted has all participants wait for all: a middle one of a chain cannot know of the last.
func counted(all []member) []member {
	for i := range all {
		if all[i].kind.participant() {
			all[i].want = 0
			for _, m := range all {
				if m.kind.participant() {
					all[i].want++
				}
			}
		}
	}
	return all
}

func TestAlgorithmsGiveTheSameBitsEverywhere(t *testing.T) {
	for _, algorithm := range Algorithms() {
		for n := 1; n <= 6; n++ {
			if n == 1 && algorithm != Auto {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", algorithm, n), func(t *testing.T) {
				testenv.NoLeaks(t)
				all := options(t, config(1000+n, "float", "sum", algorithm), nil, counted(chain(n)))
				check(t, all, run(testenv.Deadline(t, time.Minute), all))
			})
		}
	}
}

// Every type and operation, also of vectors shorter than the group.
func TestTypesAndOperations(t *testing.T) {
	for _, typ := range Types() {
		for _, op := range Operations() {
			for _, algorithm := range []string{"ring", doubling, scatter} {
				t.Run(typ+"/"+op+"/"+algorithm, func(t *testing.T) {
					testenv.NoLeaks(t)
					all := options(t, config(2, typ, op, algorithm), nil, counted(chain(3)))
					check(t, all, run(testenv.Deadline(t, time.Minute), all))
				})
			}
		}
	}
}

var key = []byte("0123456789abcdef0123456789abcdef")

func TestGroupsOfBothKinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		key     []byte
		members []member
	}{
		{"a daemon with a client", nil, []member{{kind: Daemon, clients: 1}, {kind: Offloaded, names: []int{0}}}},
		{"a daemon with three clients", nil, []member{{kind: Daemon, clients: 3}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{0}}}},
		{"two daemons with a client each", nil, []member{{kind: Daemon, clients: 1, names: []int{1}}, {kind: Daemon, clients: 1}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{1}}}},
		{"daemons that name each other and themselves", nil, []member{{kind: Daemon, clients: 1, names: []int{0, 1}}, {kind: Daemon, clients: 1, names: []int{0, 1}}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{1}}}},
		{"a daemon and a client that is not offloaded", nil, []member{{kind: Daemon, clients: 1, want: 2}, {kind: Direct, names: []int{0}}, {kind: Offloaded, names: []int{0}}}},
		{"two of each kind", nil, []member{{kind: Daemon, clients: 2, want: 4}, {kind: Daemon, clients: 1, names: []int{0}, want: 4}, {kind: Direct, names: []int{0, 1}, want: 4}, {kind: Direct, names: []int{2}}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{1}}, {kind: Offloaded, names: []int{0}}}},
		{"with a key", key, []member{{kind: Daemon, clients: 1, want: 2}, {kind: Direct, names: []int{0}}, {kind: Offloaded, names: []int{0}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			for i := range c.members {
				if c.members[i].kind.participant() && c.members[i].want == 0 && strings.HasPrefix(c.name, "two") {
					counted(c.members)
				}
			}
			all := options(t, config(5000, "double", "sum", Auto), c.key, c.members)
			check(t, all, run(testenv.Deadline(t, time.Minute), all))
		})
	}
}

// The daemon works while its client computes: the results are there before the client waits.
func TestDaemonWorksWhileItsClientComputes(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	c := config(5000, "int", "sum", Auto)
	all := options(t, c, nil, []member{{kind: Daemon, clients: 2, want: 1}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{0}}})
	served := make(chan outcome, 2)
	for _, i := range []int{0, 2} {
		go func() {
			results, err := one(ctx, i, all[i])
			served <- outcome{results, err}
		}()
	}
	s, err := Form(ctx, all[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{NetworkBatches, c.Batches, 0} {
		if err := s.Barrier(nil); err != nil {
			t.Fatal(err)
		}
		for range n {
			if err := s.Batch(func() {
				for done := false; !done && ctx.Err() == nil; {
					var err error
					if _, done, err = s.house.Iprobe(0, tagDone); err != nil {
						t.Error(err)
						return
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if o := <-served; o.err != nil {
			t.Error(o.err)
		}
	}
}

// A client that is not offloaded has sent nothing until it has computed.
func TestClientComputesFirst(t *testing.T) {
	testenv.NoLeaks(t)
	all := options(t, config(5000, "float", "sum", Auto), nil, []member{{kind: Direct, want: 1}})
	s, err := Form(testenv.Deadline(t, time.Minute), all[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Batch(func() {
		if s.op != 0 {
			t.Error("it began before it had computed")
		}
	}), s.Close()); err != nil || s.op != all[0].Batch {
		t.Errorf("after %d operations: %v", s.op, err)
	}
}

// Vectors that the members' shared memory has no room for go through memory of their own.
func TestClientsWithMemoryOfTheirOwn(t *testing.T) {
	testenv.NoLeaks(t)
	c := config(1000, "int", "sum", Auto)
	all := options(t, c, nil, []member{{kind: Daemon, clients: 2, want: 2}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{0}}, {kind: Direct, names: []int{0}}})
	for i := range all {
		all[i].apart = true
	}
	check(t, all, run(testenv.Deadline(t, time.Minute), all))
}
