// Package proc reads what the kernel says of a process in /proc/PID/stat
// (proc_pid_stat(5)): one reader for all who look at processes.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux that Go runs on.
const Tick = time.Second / 100

// Stat is what the kernel says of a process, or of one of its threads.
type Stat struct {
	PID                    int
	Name                   string // its program, as the kernel calls it: at most 15 bytes, or 63 of a kernel thread
	State                  byte   // R, S, D, T, t, Z, X ...
	Parent, Group, Session int
	CPU                    time.Duration // in user mode and in the kernel, in whole Ticks
	Threads                int
	Parted                 bool   // it has waited for the end of a process that it had started
	Start                  uint64 // when it began, in Ticks since the machine did
	RSS                    int64  // bytes of memory

	flags uint64
}

// Of is the stat of a process. ok is false where there is none, or no /proc.
func Of(pid int) (s Stat, ok bool) { return Read("/proc/" + strconv.Itoa(pid) + "/stat") }

// Children are the processes whose parent is a thread: of a process, by its number, the first one. There are none where the
// kernel was built without that list.
func Children(thread int) (list []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", thread))
	for word := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			list = append(list, child)
		}
	}
	return list
}

// All are the processes of this machine that can be seen.
func All() (list []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // ReadDir sorts them, too
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// Read reads a file as /proc/PID/stat or /proc/PID/task/TID/stat.
func Read(file string) (s Stat, ok bool) {
	// Without package os, which would offer the file to the poller: each rank reads some
	// when it starts.
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return s, false
	}
	var text [longest]byte
	n, err := unix.Read(fd, text[:])
	_ = unix.Close(fd)
	if err != nil {
		return s, false
	}
	return Parse(text[:n])
}

// longest is more than a stat takes: a name and 51 numbers.
const longest = 1 << 11

// Parse reads "PID (NAME) STATE PPID PGRP SESSION ...". A name may have anything in it,
// blanks and parentheses too, so it ends with the last of them.
func Parse(text []byte) (s Stat, ok bool) {
	head, rest, found := bytes.Cut(text, []byte(" ("))
	end := bytes.LastIndexByte(rest, ')')
	if !found || end < 0 {
		return s, false
	}
	const first, last = 3, 24 // the fields behind the name that are read
	fields := bytes.Fields(rest[end+1:])
	if len(fields) <= last-first || len(fields[0]) != 1 {
		return s, false
	}
	ok = true
	number := func(word []byte) uint64 {
		n, err := strconv.ParseInt(string(word), 10, 64)
		ok = ok && err == nil
		return uint64(n)
	}
	field := func(i int) uint64 { return number(fields[i-first]) }
	s = Stat{
		PID: int(number(head)), Name: string(rest[:end]), State: fields[0][0],
		Parent: int(field(4)), Group: int(field(5)), Session: int(field(6)),
		CPU:     time.Duration(field(14)+field(15)) * Tick,
		Parted:  field(11) > 0, // a page fault of such a process
		Threads: int(field(20)), Start: field(22), RSS: int64(field(last)) * int64(unix.Getpagesize()),
		flags: field(9),
	}
	return s, ok
}

// flagExiting is PF_EXITING of Linux' include/linux/sched.h.
const flagExiting = 0x4

// Ended tells whether the process has ended and waits for its parent to ask.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// Exiting tells whether it has ended, or cannot but end.
func (s Stat) Exiting() bool { return s.Ended() || s.flags&flagExiting != 0 }

// Alive tells whether a process exists and has not ended. Where /proc is hidden or not
// mounted it goes by kill, to which a process that nobody waits for is alive.
func Alive(pid int) bool {
	if unix.Kill(pid, 0) == unix.ESRCH {
		return false
	}
	s, ok := Of(pid)
	return !ok || !s.Ended()
}
