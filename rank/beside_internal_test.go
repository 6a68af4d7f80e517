package rank

import (
	"cmp"
	"runtime"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A thread that listens, and a call begins; or that finds a call inside while operations are
// open: it sleeps until the call ends, and no longer.
func TestEndOfCallWakesProgressThread(t *testing.T) {
	testenv.NoLeaks(t)
	s, err := shm.NewLocal(shm.DefaultGeometry(1, shm.Limit()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, sleep := range map[string]func(w *World, b *beside){
		"listens": func(w *World, b *beside) {
			b.bell.Prepare()
			if err := w.enter(); err != nil {
				t.Fatal(err)
			}
		},
		"finds a call inside": func(w *World, b *beside) {
			if err := w.enter(); err != nil {
				t.Fatal(err)
			}
			b.bell.Doze()
			if !b.awaitEnd() {
				t.Fatal("the call has ended, it says")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &beside{bell: s.Beside(0)}
			w := &World{beside: b}
			b.w = w
			sleep(w, b)
			if b.bell.Sleep(int64(time.Millisecond)) {
				t.Error("the thread woke while the call was inside")
			}
			w.leave()
			if !b.bell.Sleep(int64(time.Millisecond)) {
				t.Error("the end of the call did not wake the thread")
			}
			b.bell.Doze()
			if err := w.enter(); err != nil {
				t.Fatal(err)
			}
			if w.leave(); b.bell.Sleep(int64(time.Millisecond)) {
				t.Error("the end of another call woke a thread that did not wait for it")
			}
			if b.awaitEnd() {
				t.Error("the thread would wait for the end of a call, and none is inside")
			}
		})
	}
}

// Threads have the CPUs behind those of the ranks, or those of the ranks, one each.
func TestProgressThreadsHavePlacesApart(t *testing.T) {
	for _, c := range []struct {
		local, ranks int
		spare        bool
		want         int
	}{{0, 2, false, 0}, {1, 2, false, 1}, {0, 2, true, 2}, {1, 2, true, 3}, {0, 1, true, 1}} {
		if got := besideAt(c.local, c.ranks, c.spare); got != c.want {
			t.Errorf("local rank %d of %d, a spare CPU: %v: place %d, want %d", c.local, c.ranks, c.spare, got, c.want)
		}
	}
}

// A rank has the thread where that is asked for, and without a word only where a CPU is spare.
func TestProgressThreadByDefault(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		config, environment Progress
		size, cpus, sharers int
		pinned              bool
		want                bool
	}{
		{size: 2, cpus: 2, want: false},
		{size: 2, cpus: 4, want: true},
		{size: 4, cpus: 4, sharers: 2, want: true},
		{size: 2, cpus: 1, sharers: 1, want: false},
		{size: 2, cpus: 1, sharers: 1, pinned: true, want: true},
		{size: 1, cpus: 4, want: false},
		{size: 2, cpus: 4, environment: ProgressOff, want: false},
		{size: 2, cpus: 2, environment: ProgressOn, want: true},
		{size: 2, cpus: 2, config: ProgressOn, environment: ProgressOff, want: true},
		{size: 2, cpus: 2, config: ProgressAuto, environment: ProgressOn, want: false},
		{size: 1, cpus: 4, config: ProgressOn, want: false},
	} {
		w := &World{size: c.size, watch: new(watch), place: &place{size: cmp.Or(c.sharers, c.size), cpus: c.cpus, sharers: c.sharers}}
		cfg := Config{Progress: c.config, Environment: &Environment{Progress: c.environment, ProgressPinned: c.pinned}}
		if err := w.openBeside(&cfg); err != nil {
			t.Fatal(err)
		}
		if got := w.beside != nil; got != c.want {
			t.Errorf("%+v: a thread: %v", c, got)
		}
		if err := w.endBeside(); err != nil {
			t.Fatal(err)
		}
	}
}

// The thread keeps a processor in its sleeps only while there is the one that start has added.
func TestProgressThreadHasProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	arch.AddProcessors(1)
	defer runtime.GOMAXPROCS(before)
	b := &beside{allowed: runtime.GOMAXPROCS(0)}
	if !b.hasProcessor() {
		t.Error("it has none, it says, and one was added for it")
	}
	runtime.GOMAXPROCS(before) // as a program does that wants so many
	if b.hasProcessor() {
		t.Error("it has one, it says, and the program has all")
	}
	if (&beside{}).hasProcessor() {
		t.Error("it has one, it says, and is a goroutine")
	}
}
