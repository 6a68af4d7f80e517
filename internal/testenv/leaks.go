package testenv

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// leakGrace bounds how long NoLeaks waits for what is on its way out.
const leakGrace = 5 * time.Second

// NoLeaks makes the test fail when it ends with more file descriptors,
// goroutines or child processes than it began with. Call it first, so that its
// check comes after the test's other clean-ups; not for parallel tests. Of a test that has failed
// it asks nothing: what that left in the middle would be waited for in vain.
func NoLeaks(t testing.TB) {
	t.Helper()
	noLeaks(t, leakGrace)
}

func noLeaks(t testing.TB, grace time.Duration) {
	t.Helper()
	fds, kids, routines := openFDs(), children(), runtime.NumGoroutine()
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		deadline := time.Now().Add(Limit(grace))
		for {
			var left []string
			for fd, name := range openFDs() {
				if _, was := fds[fd]; !was {
					left = append(left, "fd "+fd+" "+name)
				}
			}
			for pid, name := range children() {
				if _, was := kids[pid]; !was {
					left = append(left, "child "+pid+" "+name)
				}
			}
			if n := runtime.NumGoroutine(); n > routines {
				left = append(left, fmt.Sprintf("%d goroutines, %d before", n, routines))
			}
			if left == nil {
				return
			}
			if time.Now().After(deadline) {
				sort.Strings(left)
				buf := make([]byte, 1<<16)
				t.Errorf("left behind: %s\n%s", strings.Join(left, "; "), buf[:runtime.Stack(buf, true)])
				return
			}
			runtime.Gosched()
			time.Sleep(time.Millisecond)
		}
	})
}

// openFDs names what each descriptor of this process is. Those of the
// runtime's own poller are left out: it opens them once and keeps them.
func openFDs() map[string]string {
	fds := make(map[string]string)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fds
	}
	for _, e := range entries {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.Contains(name, "anon_inode:[eventpoll]") || strings.Contains(name, "anon_inode:[eventfd]") ||
			strings.HasSuffix(name, "/fd") {
			continue
		}
		fds[e.Name()] = name
	}
	return fds
}

// children names the processes whose parent is this one, zombies included.
func children() map[string]string {
	kids := make(map[string]string)
	self := strconv.Itoa(os.Getpid())
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return kids
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (comm) state ppid ...; comm may hold blanks and parentheses.
		s := string(stat)
		end := strings.LastIndexByte(s, ')')
		if end < 0 {
			continue
		}
		if f := strings.Fields(s[end+1:]); len(f) > 1 && f[1] == self {
			kids[e.Name()] = s[:end+1] + " " + f[0]
		}
	}
	return kids
}
