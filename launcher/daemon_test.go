package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

// roleDaemon is a daemon that says that it is well, and then does what it is told: "MODE FILE". It leaves its process ID in the file.
func roleDaemon(what string) int {
	mode, file, _ := strings.Cut(what, " ")
	s, err := shm.Open(3)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	runtime.LockOSThread()
	number := s.Ranks() - 1
	beat := func() { s.Beat(number, arch.Thread()) }
	beat()
	for n := 0; mode == "works" && n < 150; n++ { // 1.5 s
		time.Sleep(10 * time.Millisecond)
		beat()
	}
	if err = os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o600); err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch mode {
	case "spins":
		for {
			arch.Pause()
		}
	case "blocks":
		for {
			time.Sleep(time.Hour)
		}
	}
	for {
		beat()
		time.Sleep(10 * time.Millisecond)
	}
}

// A daemon that is alive and makes no pass is killed, so that the ranks hear of its end; one that makes passes is not.
func TestDaemonHangs(t *testing.T) {
	testenv.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for mode, says := range map[string]string{"spins": "SIGKILL, for it ran in a circle", "blocks": "SIGKILL, for it hung", "works": ""} {
		t.Run(mode, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			script := "until [ -s " + file + " ]; do sleep .01; done"
			if says != "" {
				// It has ended when its last thread has, not just the first one.
				script += "; read pid <" + file + "; until grep -q ') Z ' /proc/$pid/stat && [ /proc/$pid/task/* = /proc/$pid/task/$pid ] 2>/dev/null; do sleep .01; done"
			}
			var warned []string
			if _, _, _, err := runJob(t, Job{Argv: sh(script), NP: 1, Env: append(os.Environ(), "TEST_DAEMON="+mode+" "+file), Hosting: hosting.Settings{Offload: 1, OffloadProgram: self},
				Warn: func(text string) { warned = append(warned, text) }}); err != nil {
				t.Fatal(err)
			}
			ended := slices.ContainsFunc(warned, func(s string) bool { return strings.Contains(s, "the daemon of --offload, has ended with "+says) })
			if ended != (says != "") {
				t.Errorf("warned %q, want that the daemon has ended with %q", warned, says)
			}
		})
	}
}
