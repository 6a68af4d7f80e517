package host

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/internal/proc"
)

// describe says what a process is doing.
func describe(p proc.Stat) string {
	doing := map[byte]string{'R': "running", 'S': "sleeping", 'D': "waiting for a device or a file system", 'T': "stopped", 't': "stopped by a debugger", 'Z': "a zombie"}[p.State]
	doing = cmp.Or(doing, "in state "+string(p.State))
	if where := kernelFunction(p.PID); where != "" && p.State != 'R' {
		doing += " in " + where
	}
	threads := strconv.Itoa(p.Threads) + " threads"
	if p.Threads == 1 {
		threads = "1 thread"
	}
	return fmt.Sprintf("%s (pid %d): %s, %s, %.2f s of CPU time", p.Name, p.PID, doing, threads, p.CPU.Seconds())
}

// kernelFunction is where in the kernel a process waits; "" if it does not say.
func kernelFunction(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/wchan")
	if err != nil || string(text) == "0" {
		return ""
	}
	return string(text)
}

// examine tells what the ranks are doing. With traces, programs of Go are made to
// write where their goroutines are (SIGQUIT), which ends them.
func (w *watcher) examine(traces bool) {
	states, samples := make(map[int][]string), []Sample(nil)
	all := w.processes()
	for i, r := range w.up() {
		rank := w.rankOf(i)
		if r.gone {
			states[rank] = []string{"has ended"}
			continue
		}
		lines, uses := []string{}, w.uses(i, all[i])
		for _, p := range all[i] {
			lines = append(lines, describe(p))
		}
		call := "" // in which the rank is
		if w.spec.Profile > 0 {
			uses.Calls, call = w.recorded(i)
		}
		samples = append(samples, uses)
		if joined, finalized := w.server.met(i); joined && !finalized {
			where := "after MPI_Init, before the end of MPI_Finalize"
			if w.server.engine(i).InFence(rank) {
				where = "waiting for the other ranks at its launcher's barrier, as in MPI_Init and MPI_Finalize"
			}
			lines = append(lines, "MPI: "+where)
			call = cmp.Or(w.waits(i), call)
		}
		if call != "" {
			lines = append(lines, "MPI: "+call)
		}
		states[rank] = lines
	}
	w.emit(Event{Kind: States, Tails: states, Samples: samples})
	if !traces {
		return
	}
	w.quitting = true
	for _, list := range all {
		for _, p := range list {
			if isGo(p.PID) {
				// It may have ended just now.
				_ = unix.Kill(p.PID, unix.SIGQUIT)
			}
		}
	}
}

// freshWait is how old a rank's word about its wait may be that is taken for true: it
// looks every 10 ms, but not where it gets no CPU.
const freshWait = time.Second

// sharedClock is the clock of the ranks' records.
func sharedClock() time.Duration {
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) // it fails for no clock that there is
	return time.Duration(clock.Nano())
}

// waits says in which call a rank of package rank waits, for which and since when; "" if it
// has not said so.
func (w *watcher) waits(local int) string {
	wait, ok := w.segment.Waits(local, sharedClock())
	if !ok {
		return ""
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	since := time.Now().Add(-wait.Since).Format("15:04:05.000")
	if wait.Looked > freshWait {
		return fmt.Sprintf("it has waited %s, since %s, and has not looked for %v: it computes, or gets no CPU", wait.Text, since, round(wait.Looked))
	}
	return fmt.Sprintf("it waits %s, since %s (%v)", wait.Text, since, round(wait.Since))
}

// recorded is how many calls a rank has recorded, and in which one it has been for a while; "": in none.
func (w *watcher) recorded(local int) (count uint64, in string) {
	count, op, since, ok := calls.Live(recordIn(w.filesDir, local))
	if lasts := sharedClock() - time.Duration(since); ok && op != "" && lasts > longCall {
		in = fmt.Sprintf("it is in %s, since %s (%v)", op, time.Now().Add(-lasts).Format("15:04:05.000"), lasts.Round(time.Millisecond))
	}
	return count, in
}

// longCall is how long a call has lasted that is told of.
const longCall = 20 * time.Millisecond

// isGo tells whether a process runs a program of Go.
func isGo(pid int) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil || !bytes.Equal(magic[:], []byte(elf.ELFMAG)) {
		return false
	}
	e, err := elf.NewFile(f)
	return err == nil && e.Section(".go.buildinfo") != nil
}
