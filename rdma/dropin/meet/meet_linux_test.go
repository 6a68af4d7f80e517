package meet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// fabricOf is a fabric of this test's process alone.
func fabricOf(t *testing.T) string { return fmt.Sprintf("test-%d", os.Getpid()) }

func joined(t *testing.T, fabric string) *Member {
	t.Helper()
	m, err := Join(fabric)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMembersFindEachOther(t *testing.T) {
	testenv.NoLeaks(t)
	a, b := joined(t, fabricOf(t)), joined(t, fabricOf(t))
	defer a.Close()
	defer b.Close()
	if a.Rank() == b.Rank() || a.LID() == b.LID() || a.LID() == 0 || a.Block() == b.Block() {
		t.Errorf("ranks %d and %d, LIDs %d and %d, blocks %d and %d", a.Rank(), b.Rank(), a.LID(), b.LID(), a.Block(), b.Block())
	}
	if _, ok := a.ByLID(b.LID()); ok {
		t.Error("found a member that has announced nothing")
	}
	gids := [2]rdma.GID{{1, 2, 3}, {4, 5, 6}}
	if err := b.Announce(gids, []byte("somewhere")); err != nil {
		t.Fatal(err)
	}
	byLID, ok1 := a.ByLID(b.LID())
	byGID, ok2 := a.ByGID(gids[1])
	if !ok1 || !ok2 || string(byLID.Endpoint) != "somewhere" || byLID.GIDs != gids || byGID.LID != b.LID() {
		t.Errorf("got %+v %t, %+v %t", byLID, ok1, byGID, ok2)
	}
	if err := b.Announce(gids, make([]byte, cardMost+1)); err == nil {
		t.Error("announced an endpoint that has no room")
	}
}

// TestMemberProcess is the other process of tests here. Run as a test it is empty.
func TestMemberProcess(t *testing.T) {
	fabric := os.Getenv("GORUN_TEST_FABRIC")
	if fabric == "" {
		return
	}
	m := joined(t, fabric)
	if err := m.Announce([2]rdma.GID{{byte(m.Rank())}}, []byte{7}); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("rank %d LID %d\n", m.Rank(), m.LID())
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// start starts a member in a process of its own, and gives what ends it.
func start(t *testing.T, fabric string) (rank int, lid uint16, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemberProcess$")
	cmd.Env = append(os.Environ(), "GORUN_TEST_FABRIC="+fabric)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanf(out, "rank %d LID %d\n", &rank, &lid); err != nil {
		t.Fatalf("the process said nothing: %v", err)
	}
	return rank, lid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = in.Close()
	}
}

func TestKilledMemberLeavesNothing(t *testing.T) {
	testenv.NoLeaks(t)
	fabric := fabricOf(t)
	first, _, kill := start(t, fabric)
	m := joined(t, fabric)
	if m.Rank() == first {
		t.Fatalf("two members have place %d", first)
	}
	kill()
	// The one that knew it lives: the place stays empty.
	second, lid, kill := start(t, fabric)
	if second == first || second == m.Rank() {
		t.Errorf("a member got place %d, which the living one knows from a dead one", second)
	}
	if _, ok := m.ByLID(lid); !ok {
		t.Error("the process that joined later is not found")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	kill()
	// Nobody is left: the next one begins anew, and no name is in use.
	names, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(names), "/"+fabric+"/") {
		t.Errorf("a name is left:\n%s", names)
	}
	again := joined(t, fabric)
	defer again.Close()
	if again.Rank() != 0 {
		t.Errorf("the first member of a new fabric has place %d", again.Rank())
	}
}

// What take promises, with processes that live as the test says.
func TestPlaces(t *testing.T) {
	d := directoryIn(make([]byte, recordsAt+Places*recordSize+4096))
	living := map[int]bool{}
	alive := func(pid int, _ uint64) bool { return living[pid] }
	take := func(pid int) int {
		t.Helper()
		living[pid] = true
		place, err := d.take(pid, 1, alive)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	old := take(1)
	seen := map[int]bool{old: true}
	for pid := 2; pid <= Places; pid++ {
		place := take(pid)
		if seen[place] {
			t.Fatalf("process %d got place %d, which process 1 knows from another", pid, place)
		}
		seen[place] = true
		delete(living, pid)
	}
	if _, err := d.take(Places+1, 1, alive); !errors.Is(err, ErrFull) {
		t.Errorf("got %v beyond the last place", err)
	}
	delete(living, 1)
	lids, blocks := map[uint32]bool{}, map[uint32]bool{}
	for pid := range Blocks {
		r := &d.records[take(10000+pid)]
		lids[r.lid], blocks[r.block] = true, true
	}
	if len(lids) != Blocks || len(blocks) != Blocks {
		t.Errorf("%d members have %d LIDs and %d blocks", Blocks, len(lids), len(blocks))
	}
	if _, err := d.take(1, 1, alive); !errors.Is(err, ErrFull) {
		t.Errorf("got %v with %d living members", err, Blocks)
	}
}

func TestJoinRefusesNames(t *testing.T) {
	for _, name := range []string{"a/b", "a b", strings.Repeat("x", 33)} {
		if _, err := Join(name); err == nil || !strings.Contains(err.Error(), "expected at most 32") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
