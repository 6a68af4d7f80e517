package host

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one of a rank's processes: of the group that it leads.
type process struct {
	pid, group int
	what       string // its program, as the kernel calls it
	state      string // a letter
	threads    string
	ticks      int // of CPU time
	exiting    bool
}

// processes are those of this machine by the rank of this host whose group they
// are in, by local number.
func (h *Host) processes() map[int][]process {
	leaders := make(map[int]int)
	for i, r := range h.up() {
		if !r.gone {
			leaders[r.pid] = i
		}
	}
	found := make(map[int][]process)
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range dirs {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		p, ok := parseProcess(string(text))
		if local, ours := leaders[p.group]; ok && ours {
			found[local] = append(found[local], p)
		}
	}
	return found
}

// parseProcess reads /proc/PID/stat: PID (NAME) STATE PPID PGRP ..., with the
// kernel's flags in field 9, the user's and the kernel's CPU time in 14 and 15 and
// the threads in 20.
func parseProcess(text string) (p process, ok bool) {
	head, rest, ok := strings.Cut(text, " (")
	at := strings.LastIndexByte(rest, ')')
	if !ok || at < 0 {
		return p, false
	}
	words := strings.Fields(rest[at+1:])
	if len(words) < 18 {
		return p, false
	}
	var errs [5]error
	var user, system int
	var flags uint64
	p.pid, errs[0] = strconv.Atoi(head)
	p.group, errs[1] = strconv.Atoi(words[2])
	user, errs[2] = strconv.Atoi(words[11])
	system, errs[3] = strconv.Atoi(words[12])
	flags, errs[4] = strconv.ParseUint(words[6], 10, 64)
	p.what, p.state, p.threads, p.ticks = rest[:at], words[0], words[17], user+system
	p.exiting = p.state == "Z" || p.state == "X" || flags&flagExiting != 0
	return p, errs == [5]error{}
}

// flagExiting is PF_EXITING of Linux' include/linux/sched.h.
const flagExiting = 0x4

// ticksPerSecond is the unit of CPU times in /proc on every Linux that Go runs on.
const ticksPerSecond = 100

// String says what a process is doing.
func (p process) String() string {
	doing := map[string]string{"R": "running", "S": "sleeping", "D": "waiting for a device or a file system", "T": "stopped", "t": "stopped by a debugger", "Z": "a zombie"}[p.state]
	if doing == "" {
		doing = "in state " + p.state
	}
	if where := kernelFunction(p.pid); where != "" && p.state != "R" {
		doing += " in " + where
	}
	threads := p.threads + " threads"
	if p.threads == "1" {
		threads = "1 thread"
	}
	return fmt.Sprintf("%s (pid %d): %s, %s, %.2f s of CPU time", p.what, p.pid, doing, threads, float64(p.ticks)/ticksPerSecond)
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
	states := make(map[int][]string)
	all := h.processes()
	for i, r := range h.up() {
		rank := h.rankOf(i)
		if r.gone {
			states[rank] = []string{"has ended"}
			continue
		}
		lines := []string{}
		for _, p := range all[i] {
			lines = append(lines, p.String())
		}
		if joined, finalized := h.met(i); joined && !finalized {
			where := "after MPI_Init, before the end of MPI_Finalize"
			if h.engine(i).InFence(rank) {
				where = "waiting for the other ranks at its launcher's barrier, as in MPI_Init and MPI_Finalize"
			}
			lines = append(lines, "MPI: "+where)
			if text := h.waits(i); text != "" {
				lines = append(lines, "MPI: "+text)
			}
		}
		states[rank] = lines
	}
	h.emit(Event{Kind: States, Tails: states})
	if !traces {
		return
	}
	h.quitting = true
	for _, list := range all {
		for _, p := range list {
			if isGo(p.pid) {
				// It may have ended just now.
				_ = unix.Kill(p.pid, unix.SIGQUIT)
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
