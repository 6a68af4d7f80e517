package host

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/internal/proc"
)

// processes are those of this machine by the rank of this host whose group they
// are in, by local number.
func (h *Host) processes() map[int][]proc.Stat {
	leaders := make(map[int]int)
	for i, r := range h.up() {
		if !r.gone {
			leaders[r.pid] = i
		}
	}
	found := make(map[int][]proc.Stat)
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		p, ok := proc.Read(file) // if not, it has ended
		if local, ours := leaders[p.Group]; ok && ours {
			found[local] = append(found[local], p)
		}
	}
	return found
}

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
func (h *Host) examine(traces bool) {
	states, samples := make(map[int][]string), []Sample(nil)
	all := h.processes()
	for i, r := range h.up() {
		rank := h.rankOf(i)
		if r.gone {
			states[rank] = []string{"has ended"}
			continue
		}
		lines, uses := []string{}, Sample{Rank: rank}
		for _, p := range all[i] {
			lines = append(lines, describe(p))
			uses.CPU, uses.RSS = uses.CPU+p.CPU, uses.RSS+p.RSS
		}
		call := "" // in which the rank is
		if h.spec.Profile > 0 {
			uses.Calls, call = h.recorded(i)
		}
		samples = append(samples, uses)
		if joined, finalized := h.met(i); joined && !finalized {
			where := "after MPI_Init, before the end of MPI_Finalize"
			if h.engine(i).InFence(rank) {
				where = "waiting for the other ranks at its launcher's barrier, as in MPI_Init and MPI_Finalize"
			}
			lines = append(lines, "MPI: "+where)
			call = cmp.Or(h.waits(i), call)
		}
		if call != "" {
			lines = append(lines, "MPI: "+call)
		}
		states[rank] = lines
	}
	h.emit(Event{Kind: States, Tails: states, Samples: samples})
	if !traces {
		return
	}
	h.quitting = true
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
func (h *Host) waits(local int) string {
	w, ok := h.segment.Waits(local, sharedClock())
	if !ok {
		return ""
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	since := time.Now().Add(-w.Since).Format("15:04:05.000")
	if w.Looked > freshWait {
		return fmt.Sprintf("it has waited %s, since %s, and has not looked for %v: it computes, or gets no CPU", w.Text, since, round(w.Looked))
	}
	return fmt.Sprintf("it waits %s, since %s (%v)", w.Text, since, round(w.Since))
}

// recorded is how many calls a rank has recorded, and in which one it has been for a while; "": in none.
func (h *Host) recorded(local int) (count uint64, in string) {
	count, op, since, ok := calls.Live(recordIn(h.filesDir, local))
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
