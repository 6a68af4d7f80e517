package calls

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// library is what programs call: functions whose names begin with lib are inside of it.
func library(function string) bool {
	return strings.HasPrefix(function, "github.com/gorun-mpi/gorun/internal/calls.lib") || strings.HasPrefix(function, "github.com/gorun-mpi/gorun/internal/calls.(*Recorder)")
}

//go:noinline
func libSend(r *Recorder, to, n int) {
	r.Begin()
	r.Sent(to, n, 7)
	r.End()
}

//go:noinline
func libTest(r *Recorder) { libInner(r) }

//go:noinline
func libInner(r *Recorder) {
	r.Begin()
	r.End()
}

// These are inlined, as most of package rank's methods are.
func libPut(r *Recorder)  { libInner(r) }
func libTake(r *Recorder) { libInner(r) }

// Functions of the library that are inlined into the program have their own names, and the program's lines.
func TestInlined(t *testing.T) {
	r, path := create(t, 1)
	for range 2 {
		libPut(r)
		libTake(r)
	}
	list := read(t, path, Ring).Calls
	if len(list) != 2 {
		t.Fatalf("%+v, want two places", list)
	}
	put, take := list[0], list[1]
	if put.Op != "libPut" || take.Op != "libTake" || put.Function != "calls.TestInlined" || take.Function != put.Function || take.Line != put.Line+1 || put.Count != 2 || take.Count != 2 {
		t.Errorf("%+v, want libPut, and libTake a line later, twice", list)
	}
}

type libWin[T any] struct{ r *Recorder }

func (w *libWin[T]) Put() { libInner(w.r) }

// A method of a generic type has the method's name.
func TestGeneric(t *testing.T) {
	r, path := create(t, 1)
	r.inside = func(function string) bool { return library(strings.Replace(function, "(*libWin", "lib", 1)) }
	(&libWin[int]{r}).Put()
	if list := read(t, path, Ring).Calls; len(list) != 1 || list[0].Op != "Put" || list[0].Function != "calls.TestGeneric" {
		t.Errorf("%+v, want Put in TestGeneric", list)
	}
}

func create(t *testing.T, size int) (*Recorder, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "record")
	r, err := Create(path, 1, size, library)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, path
}

func read(t *testing.T, path string, most int) *Rank {
	t.Helper()
	k, err := Read(path, most, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := k.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if k, err = Unpack(data); err != nil {
		t.Fatal(err)
	}
	return k
}

// A record has each place with its calls, each peer, and the events in order; also of a rank that was killed in a call.
func TestRecord(t *testing.T) {
	r, path := create(t, 4)
	for range 3 {
		libSend(r, 2, 100)
	}
	r.Part(3, 10)
	libSend(r, 3, 5000)
	for range 1000 {
		libTest(r) // a loop that asks is few events
	}
	r.Begin()
	r.Received(2, 10, 0)
	r.Received(3, 20, 0)
	r.End()
	r.Begin()
	k := read(t, path, Ring)
	if k.Rank != 1 || k.Size != 4 || k.Finalized || k.Current < 0 {
		t.Fatalf("%+v", k)
	}
	count := make(map[string]uint64)
	for _, c := range k.Calls {
		count[c.Op] += c.Count
		if c.Op != "" && c.Op != "Begin" && c.Op != "Received" && (!strings.HasSuffix(c.File, "calls_test.go") || c.Line == 0 || c.Function != "calls.TestRecord") {
			t.Errorf("%+v, want a place in TestRecord", c)
		}
	}
	if count["libSend"] != 4 || count["libTest"] != 1000 {
		t.Errorf("calls %v of %+v", count, k.Calls)
	}
	if len(k.Peers) != 2 || k.Peers[0] != (Peer{2, 3, 300, 1, 10}) || k.Peers[1] != (Peer{3, 1, 5010, 1, 20}) {
		t.Errorf("peers %+v", k.Peers)
	}
	if n := len(k.Events); n < 8 || n > 900 {
		t.Errorf("%d events", n)
	}
	last := int64(0)
	kinds := make(map[Kind]int)
	for i, e := range k.Events {
		if kinds[e.Kind]++; e.Start < last && e.Kind != Message {
			t.Errorf("event %d begins before the one before", i)
		}
		last = e.Start
	}
	if kinds[Arrived] != 1 || kinds[Message] != 5 {
		t.Errorf("kinds %v", kinds)
	}
	if k.Sizes[7] != 3 || k.Sizes[13] != 1 { // 100 < 1<<7, 5000 < 1<<13
		t.Errorf("sizes %v", k.Sizes)
	}
	r.End()
	if k := read(t, path, 3); k.RDMA != nil {
		t.Errorf("before the end: %+v", k.RDMA)
	}
	r.Finalized(RDMA{Device: "soft0", Writes: 1, WriteBytes: 8, Sends: 12, SendBytes: 3 << 40, Retries: 2})
	if k := read(t, path, 3); !k.Finalized || k.Current >= 0 || len(k.Events) != 3 || k.Dropped == 0 || k.RDMA.String() != "soft0: 1 write of 8 B, 12 sends of 3298534883328 B, 2 repetitions" {
		t.Errorf("%+v, %v", k, k.RDMA)
	}
	if n, in, _, ok := Live(path); n < 8 || in != "" || !ok {
		t.Errorf("%d calls are counted, in %q, %v", n, in, ok)
	}
	r.Begin()
	r.As("Recv")
	if _, in, since, ok := Live(path); in != "Recv" || since <= 0 || !ok {
		t.Errorf("in %q since %d, %v, want Recv", in, since, ok)
	}
	if n, in, _, ok := Live(path + ".none"); n != 0 || in != "" || ok {
		t.Errorf("%d calls of no record, in %q, %v", n, in, ok)
	}
}

// The ring keeps the last events, the sums are of all.
func TestRingKeepsTheLast(t *testing.T) {
	r, path := create(t, 2)
	const n = Ring + 100
	for i := range n {
		libSend(r, 0, i)
	}
	k := read(t, path, Ring)
	if len(k.Events) != Ring || k.Dropped != n-Ring || k.Events[0].Out != n-Ring || k.Events[Ring-1].Sent != n-1 {
		t.Errorf("%d events, %d dropped, first %+v", len(k.Events), k.Dropped, k.Events[0])
	}
	if k.Peers[0].Sent != n {
		t.Errorf("%+v", k.Peers)
	}
}

// What is no record, or is spoilt in any word of its header, is refused or read without harm.
func TestSpoiltRecords(t *testing.T) {
	r, path := create(t, 3)
	for i := range 10 {
		libSend(r, i%3, 8)
	}
	mem, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 4095, len(mem) - 1} {
		if _, err := parse(mem[:n], Ring, 0, nil); err == nil {
			t.Errorf("%d bytes of a record are none", n)
		}
	}
	for at := 0; at < 96; at += 4 {
		for _, v := range []uint32{0, 1, 511, 512, 513, 1 << 20, 1<<32 - 1} {
			bad := append([]byte(nil), mem...)
			binary.LittleEndian.PutUint32(bad[at:], v)
			if k, err := parse(bad, Ring, 0, nil); err == nil {
				if data, err := k.Pack(); err != nil {
					t.Error(err)
				} else if _, err := Unpack(data); err != nil && !errors.Is(err, errNoRecord) {
					t.Error(err)
				}
			}
		}
	}
	fifo, link := path+".fifo", path+".link"
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{fifo, link, filepath.Dir(path)} {
		if _, err := Read(other, Ring, 0, nil); err == nil {
			t.Errorf("%s is a record", other)
		}
	}
	if _, err := Create(path, 0, 1, library); !os.IsExist(err) {
		t.Errorf("a second record in the same file: %v", err)
	}
}

// More places than the record tells apart are added up.
func TestManyPlaces(t *testing.T) {
	r, _ := create(t, 1)
	for i := range 2 * Sites {
		at := r.newSite("Op", "f", strings.Repeat("x", i%100)+string(rune('a'+i%26))+":"+strings.Repeat("1", i/100))
		if i > Sites && at > Sites {
			t.Fatalf("site %d", at)
		}
	}
	if r.head.sites != Sites {
		t.Errorf("%d sites, want %d", r.head.sites, Sites)
	}
}

func BenchmarkCall(b *testing.B) {
	path := filepath.Join(b.TempDir(), "record")
	r, err := Create(path, 0, 2, library)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		libSend(r, 1, 8)
	}
}
