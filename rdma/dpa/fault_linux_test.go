//go:build linux

package dpa

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func explode(*Thread) error { panic(errExploded) }

var errExploded = errors.New("exploded")

func TestPanicIsTheEventsErrorWithItsStack(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{Threads: 2})
	g, never := group(t, c, 2), event(t, c, CPU, Device)
	done := launched(t, g, Launch{Name: "bomb", Kernel: func(th *Thread) error {
		if th.Rank() == 1 {
			return explode(th)
		}
		return th.WaitGt(never, 0) // ends because the other one has failed
	}})
	failed := failure(t, done)
	if failed.Kernel != "bomb" || failed.Rank != 1 || failed.Panic != errExploded || !errors.Is(failed, errExploded) || failed.GivenUp != nil {
		t.Errorf("got %+v, want the panic of rank 1", failed)
	}
	if !strings.Contains(failed.Stack, "dpa.explode") || !strings.Contains(failed.Error(), "soft0 device thread 1 (OS thread ") {
		t.Errorf("the error is %q, its stack\n%s\nwant the thread's name and the function", failed, failed.Stack)
	}
	if _, err := done.Get(); !errors.Is(err, failed) {
		t.Errorf("Get of the failed event: %v, want its error", err)
	}
	if c.LastError() != error(failed) || c.Counters().Failed != 1 {
		t.Errorf("the last error is %v, counters %+v, want the failure", c.LastError(), c.Counters())
	}
	goesOn(t, g)
}

// Reading memory that may not be read is a panic too, not the end of the process.
func TestFaultIsAFailure(t *testing.T) {
	testenv.NoLeaks(t)
	g := group(t, open(t, Config{}), 1)
	forbidden := must[[]byte](t)(unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE))
	defer unix.Munmap(forbidden)
	var read byte
	failed := failure(t, launched(t, g, Launch{Kernel: func(*Thread) error { read = forbidden[8]; return nil }}))
	var runtimeError runtime.Error
	if !errors.As(failed, &runtimeError) || read != 0 {
		t.Errorf("got %v, want a runtime.Error", failed)
	}
	goesOn(t, g)
}

func TestErrorIsTheEventsError(t *testing.T) {
	testenv.NoLeaks(t)
	g := group(t, open(t, Config{}), 1)
	failed := failure(t, launched(t, g, Launch{Kernel: func(*Thread) error { return errExploded }}))
	if !errors.Is(failed, errExploded) || failed.Stack != "" || !strings.Contains(failed.Kernel, "TestErrorIsTheEventsError") {
		t.Errorf("got %+v, want what the kernel returned, and its name", failed)
	}
	goesOn(t, g)
}

func TestGoexitIsAFailure(t *testing.T) {
	testenv.NoLeaks(t)
	g := group(t, open(t, Config{Threads: 2}), 2)
	failed := failure(t, launched(t, g, Launch{Kernel: func(th *Thread) error {
		if th.Rank() == 0 {
			runtime.Goexit()
		}
		return nil
	}}))
	if !errors.Is(failed, ErrGoexit) || failed.Rank != 0 {
		t.Errorf("got %v, want %v of rank 0", failed, ErrGoexit)
	}
	goesOn(t, g)
}

// A kernel that waits in vain is stopped at its deadline, and its thread stays.
func TestDeadlineEndsWaits(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{MaxRunTime: 5 * time.Millisecond})
	g, never := group(t, c, 1), event(t, c, RemoteNet, Device)
	failed := failure(t, launched(t, g, Launch{Kernel: func(th *Thread) error { return th.WaitGt(never, 0) }}))
	if !errors.Is(failed, ErrDeadline) || failed.GivenUp != nil || !strings.Contains(failed.Stack, "(*Thread).WaitGt") {
		t.Errorf("got %v with the stack\n%s\nwant %v in WaitGt", failed, failed.Stack, ErrDeadline)
	}
	goesOn(t, g)
}

// stuckHere is a kernel that does not return before it is let go.
func stuckHere(release chan struct{}) { <-release }

// A kernel that does not come back is given up: the event has the thread's name and stack, and another has its seat.
func TestHangIsGivenUp(t *testing.T) {
	testenv.NoLeaks(t)
	c := must[*Context](t)(New(domains(t, 1, fabric{})[0], Config{Threads: 2, Grace: testenv.Limit(50 * time.Millisecond)}))
	g, release := group(t, c, 2), make(chan struct{})
	done := launched(t, g, Launch{Deadline: testenv.Limit(100 * time.Millisecond), Kernel: func(th *Thread) error {
		if th.Rank() == 1 {
			stuckHere(release)
		}
		return th.Err()
	}})
	failed := failure(t, done)
	if !errors.Is(failed, ErrDeadline) || len(failed.GivenUp) != 1 || !strings.HasPrefix(failed.GivenUp[0], "soft0 device thread 1 (OS thread ") {
		t.Fatalf("got %+v, want rank 1 given up at its deadline", failed)
	}
	if !strings.Contains(failed.Stack, failed.GivenUp[0]+":\ngoroutine") || !strings.Contains(failed.Stack, "dpa.stuckHere") {
		t.Errorf("the stack is\n%s\nwant that of the thread in stuckHere", failed.Stack)
	}
	if c.Counters().GivenUp != 1 {
		t.Errorf("counters %+v, want one thread given up", c.Counters())
	}
	goesOn(t, g)
	var stuck *StuckError
	if err := c.Close(); !errors.As(err, &stuck) || len(stuck.Threads) != 1 || stuck.Threads[0] != failed.GivenUp[0] {
		t.Errorf("Close: %v, want %s stuck", err, failed.GivenUp[0])
	}
	close(release) // the thread ends, so that nothing leaks
}

func TestCloseWhileAKernelRuns(t *testing.T) {
	testenv.NoLeaks(t)
	c := must[*Context](t)(New(domains(t, 1, fabric{})[0], Config{Threads: 3}))
	g, asleep := group(t, c, 2), group(t, c, 1)
	begun, never := event(t, c, Device, CPU), event(t, c, CPU, Device)
	running := launched(t, g, Launch{Kernel: func(th *Thread) error {
		if err := th.Add(begun, 1); err != nil {
			return err
		}
		if th.Rank() == 0 {
			for th.Err() == nil { // computes
			}
			return nil
		}
		return th.WaitGt(never, 0)
	}})
	queued := launched(t, g, Launch{Kernel: func(*Thread) error { t.Error("the queued kernel ran"); return nil }})
	waiting := launched(t, asleep, Launch{Kernel: func(*Thread) error { t.Error("the waiting kernel ran"); return nil }, Wait: never})
	if err := begun.WaitGt(soon(t), 1); err != nil {
		t.Fatal(err)
	}
	unanswered := event(t, c, Device, CPU)
	waits := make(chan error)
	go func() { waits <- unanswered.WaitGt(soon(t), 0) }()
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Errorf("a wait of the program: %v, want %v", err, ErrClosed)
	}
	for name, done := range map[string]*SyncEvent{"running": running, "queued": queued, "waiting": waiting} {
		if failed := failure(t, done); !errors.Is(failed, ErrClosed) {
			t.Errorf("the %s launch: %v, want %v", name, failed, ErrClosed)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	if _, err := c.NewThreadGroup(1); !errors.Is(err, ErrClosed) {
		t.Errorf("NewThreadGroup after Close: %v, want %v", err, ErrClosed)
	}
	if _, err := c.NewSyncEvent(CPU, Device); !errors.Is(err, ErrClosed) {
		t.Errorf("NewSyncEvent after Close: %v, want %v", err, ErrClosed)
	}
	if err := never.Set(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Set after Close: %v, want %v", err, ErrClosed)
	}
}

// Close names the threads that do not return, in bounded time.
func TestCloseGivesUpAHungKernel(t *testing.T) {
	testenv.NoLeaks(t)
	c := must[*Context](t)(New(domains(t, 1, fabric{})[0], Config{Grace: time.Millisecond}))
	g, begun, release := group(t, c, 1), event(t, c, Device, CPU), make(chan struct{})
	done := launched(t, g, Launch{Kernel: func(th *Thread) error {
		err := th.Set(begun, 1)
		stuckHere(release)
		return err
	}})
	if err := begun.WaitGt(soon(t), 0); err != nil {
		t.Fatal(err)
	}
	var stuck *StuckError
	if err := c.Close(); !errors.As(err, &stuck) || !strings.Contains(err.Error(), "soft0 device thread 0") {
		t.Errorf("Close: %v, want the thread's name", err)
	}
	if failed := failure(t, done); !errors.Is(failed, ErrClosed) || len(failed.GivenUp) != 1 || !strings.Contains(failed.Stack, "stuckHere") {
		t.Errorf("the launch: %+v, want it given up in stuckHere", failed)
	}
	close(release)
}

// A launch whose wait event stands for a failed one fails with it.
func TestFailureIsPassedOn(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{Threads: 2})
	first, between := group(t, c, 1), event(t, c, Device, Device)
	if err := first.Launch(Launch{Kernel: explode, Complete: between, Value: 1}); err != nil {
		t.Fatal(err)
	}
	next := launched(t, group(t, c, 1), Launch{Kernel: func(*Thread) error { t.Error("it ran"); return nil }, Wait: between})
	if failed := failure(t, next); !errors.Is(failed, errExploded) || !strings.Contains(failed.Error(), "wait event") {
		t.Errorf("got %v, want the failure of the launch before", failed)
	}
}

func TestEventsHoldToTheirLocations(t *testing.T) {
	testenv.NoLeaks(t)
	c := open(t, Config{})
	g := group(t, c, 1)
	fromCPU, fromDevice, fromNet := event(t, c, CPU, Device), event(t, c, Device, CPU), event(t, c, RemoteNet, Device)
	toNet := event(t, c, Device, RemoteNet)
	kernel := func(*Thread) error { return nil }
	export := func(e *SyncEvent) error { _, err := e.Export(); return err }
	get := func(e *SyncEvent) error { _, err := e.Get(); return err }
	onDevice := func(f func(th *Thread) error) error {
		var misuse error
		err := finished(t, launched(t, g, Launch{Kernel: func(th *Thread) error { misuse = f(th); return nil }}))
		return errors.Join(misuse, err)
	}
	for name, err := range map[string]error{
		"set from the CPU, of the device's":   fromDevice.Set(1),
		"add from the CPU, of the device's":   fromDevice.Add(1),
		"set from the CPU, of a peer's":       fromNet.Set(1),
		"get from the CPU, of others' only":   get(fromNet),
		"wait at the CPU, for the device":     fromCPU.WaitGt(soon(t), 0),
		"export of a local one":               export(fromCPU),
		"set from the device, of the CPU's":   onDevice(func(th *Thread) error { return th.Set(fromCPU, 1) }),
		"add from the device, of a peer's":    onDevice(func(th *Thread) error { return th.Add(fromNet, 1) }),
		"wait at the device, for the CPU":     onDevice(func(th *Thread) error { return th.WaitGt(fromDevice, 0) }),
		"wait at the device, for a peer":      onDevice(func(th *Thread) error { return th.WaitGt(toNet, 0) }),
		"wait event that the CPU subscribes":  g.Launch(Launch{Kernel: kernel, Wait: fromDevice}),
		"completion event that the CPU sets":  g.Launch(Launch{Kernel: kernel, Complete: fromCPU}),
		"completion event that the net sets":  g.Launch(Launch{Kernel: kernel, Complete: fromNet}),
		"wait event that a peer waits for":    g.Launch(Launch{Kernel: kernel, Wait: toNet}),
		"no publisher":                        func() error { _, err := c.NewSyncEvent(0, CPU); return err }(),
		"the remote network with itself":      func() error { _, err := c.NewSyncEvent(RemoteNet, RemoteNet); return err }(),
		"a subscriber that there is not (99)": func() error { _, err := c.NewSyncEvent(CPU, 99); return err }(),
	} {
		if !errors.Is(err, errInvalid) {
			t.Errorf("%s: %v, want %v", name, err, errInvalid)
		}
	}
	var where *LocationError
	if err := fromDevice.Set(1); !errors.As(err, &where) || err.Error() != "set of a sync event from the CPU: its publisher is the device and its subscriber the CPU" {
		t.Errorf("got %q", err)
	}
}
