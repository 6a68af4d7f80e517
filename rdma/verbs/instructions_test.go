//go:build cgo && linux && amd64

package verbs_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// countVar has TestCounted post and poll that many requests a round, for the
// tracer that has started it.
const countVar = "GORUN_TEST_COUNT"

// countRounds are enough for one at least that the runtime does not disturb.
const countRounds = 20

// mark stops a thread that is traced.
func mark() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGUSR1))
}

// TestCounted is testdata/loop.c in Go.
func TestCounted(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	size, err := strconv.Atoi(os.Getenv(countVar))
	if err != nil {
		return
	}
	b := newBench(t)
	list, wc := make([]rdma.SendWR, size), make([]rdma.WC, size)
	for i := range list {
		list[i] = b.write(uint64(i))
	}
	round := func() {
		if n, err := b.qp.PostSend(list); n != size || err != nil {
			t.Fatalf("PostSend: %d, %v", n, err)
		}
		for got := 0; got < size; {
			n, err := b.cq.Poll(wc)
			if err != nil {
				t.Fatalf("Poll: %v", err)
			}
			for i := range wc[:n] {
				if wc[i].Status != rdma.WCSuccess {
					t.Fatalf("completion %+v", wc[i])
				}
			}
			got += n
		}
	}
	round() // makes the batch as long as it gets
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PTRACE, syscall.PTRACE_TRACEME, 0, 0); errno != 0 {
		t.Fatalf("PTRACE_TRACEME: %v", errno)
	}
	fmt.Printf("thread %d\n", syscall.Gettid())
	mark()
	mark()
	for range countRounds {
		mark()
		round()
		mark()
	}
}

// steps are instructions: those of the program, of which crossing are of Go's
// runtime and of what cgo writes, and those of the library below it with libc.
type steps struct{ own, crossing, below int }

// countSteps runs a program that marks a round of nothing and then countRounds
// others, and gives the shortest of these, less the first. Each instruction is
// a stop of its own.
func countSteps(b *testing.B, cmd *exec.Cmd) steps {
	b.Helper()
	runtime.LockOSThread() // the thread that starts it is the tracer
	defer runtime.UnlockOSThread()
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cmd.Wait(); err != nil {
			b.Errorf("%v: %v", cmd.Args, err)
		}
	}()
	lines := bufio.NewReader(out)
	var thread int
	for thread == 0 {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatalf("%v ended before it could be traced: %v", cmd.Args, err)
		}
		_, _ = fmt.Sscanf(line, "thread %d", &thread)
	}
	var from, to uint64 // the program's own code
	var frozen []int
	stopped := func() syscall.Signal {
		b.Helper()
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(thread, &status, syscall.WALL, nil); err != nil || !status.Stopped() {
			_ = cmd.Process.Kill()
			b.Fatalf("wait for thread %d: %v, status %#x", thread, err, status)
		}
		return status.StopSignal()
	}
	must := func(err error) {
		b.Helper()
		if err != nil {
			_ = cmd.Process.Kill()
			b.Fatal(err)
		}
	}
	// Other signals, which the runtime sends itself, are not passed on.
	measure := func() (n steps) {
		for stopped() != syscall.SIGUSR1 {
			must(syscall.PtraceCont(thread, 0))
		}
		if to == 0 {
			from, to = ownCode(b, cmd)
			frozen = freeze(b, cmd.Process.Pid, thread)
		}
		for {
			must(syscall.PtraceSingleStep(thread))
			if s := stopped(); s == syscall.SIGUSR1 {
				return n
			} else if s != syscall.SIGTRAP {
				continue
			}
			var regs syscall.PtraceRegs
			must(syscall.PtraceGetRegs(thread, &regs))
			if regs.Rip >= from && regs.Rip < to {
				n.own++
				if crossing(uintptr(regs.Rip - from)) {
					n.crossing++
				}
			} else {
				n.below++
			}
		}
	}
	nothing := measure()
	least := steps{own: math.MaxInt / 2}
	for range countRounds {
		must(syscall.PtraceCont(thread, 0))
		if n := measure(); n.own+n.below < least.own+least.below {
			least = n
		}
	}
	for _, other := range append(frozen, thread) {
		must(syscall.PtraceDetach(other))
	}
	return steps{least.own - nothing.own, least.crossing - nothing.crossing, least.below - nothing.below}
}

// crossing tells whether what lies at an offset in the code of this very executable
// is the way into C and back: neither this package nor its tests wrote it.
func crossing(offset uintptr) bool {
	f := runtime.FuncForPC(ownText() + offset)
	return f == nil || !strings.HasPrefix(f.Name(), "github.com/") || strings.Contains(f.Name(), "._Cfunc_")
}

// ownText is where this process has the code of its executable.
var ownText = sync.OnceValue(func() uintptr {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	from, _ := textIn(string(maps), executable())
	return uintptr(from)
})

func executable() string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return self
}

// freeze stops the other threads of a process: Go's monitor would take a call of
// C that is this slow for one that blocks.
func freeze(b *testing.B, pid, but int) (frozen []int) {
	b.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range threads {
		thread, err := strconv.Atoi(entry.Name())
		if err != nil {
			b.Fatal(err)
		}
		if thread == but {
			continue
		}
		var status syscall.WaitStatus
		if err = syscall.PtraceAttach(thread); err == nil {
			_, err = syscall.Wait4(thread, &status, syscall.WALL, nil)
		}
		if err != nil || !status.Stopped() {
			b.Fatalf("stop thread %d: %v, status %#x", thread, err, status)
		}
		frozen = append(frozen, thread)
	}
	return frozen
}

// ownCode is where a process has the code of its executable.
func ownCode(b *testing.B, cmd *exec.Cmd) (from, to uint64) {
	b.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	if from, to = textIn(string(maps), cmd.Path); to == 0 {
		b.Fatalf("no code of %s in\n%s", cmd.Path, maps)
	}
	return from, to
}

// textIn finds the code of a program in /proc/PID/maps.
func textIn(maps, program string) (from, to uint64) {
	for line := range strings.Lines(maps) {
		if f := strings.Fields(line); len(f) == 6 && f[1] == "r-xp" && f[5] == program {
			if _, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err == nil {
				return from, to
			}
		}
	}
	return 0, 0
}

// BenchmarkInstructions counts the instructions of a PostSend and the Polls for it,
// beside those of the same loop in C, which is that of perftest's ib_write_lat.
// Both run on testdata/fake.c, whose own instructions are given apart, and so are
// those of ours that are cgo's, which two empty calls of C would take too.
func BenchmarkInstructions(b *testing.B) {
	gcc := testenv.Need(b, "gcc")
	loop := filepath.Join(b.TempDir(), "loop")
	cc := exec.Command(gcc, "-O2", "-o", loop, filepath.Join("testdata", "loop.c"), fakeLibrary(b))
	if out, err := cc.CombinedOutput(); err != nil {
		b.Fatalf("build loop: %v\n%s", err, out)
	}
	self := executable()
	for _, size := range []int{1, 16} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			var ours, theirs steps
			for b.Loop() {
				cmd := exec.Command(self, "-test.run=^TestCounted$")
				// The library looks through the environment at every call.
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), fmt.Sprint(countVar, "=", size), "GODEBUG=asyncpreemptoff=1", "GOGC=off"}
				ours = countSteps(b, cmd)
				c := exec.Command(loop, strconv.Itoa(size), strconv.Itoa(countRounds))
				c.Env = cmd.Env
				theirs = countSteps(b, c)
			}
			b.ReportMetric(float64(ours.own), "go-instr")
			b.ReportMetric(float64(theirs.own), "c-instr")
			b.ReportMetric(float64(ours.crossing), "cgo-instr")
			b.ReportMetric(float64(ours.below), "driver-instr")
			b.ReportMetric(float64(ours.own)/float64(theirs.own), "go/c")
			b.ReportMetric(float64(ours.own-theirs.own)/float64(size), "more/request")
		})
	}
}
