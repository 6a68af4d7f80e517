package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

const watchdogVar = "GORUN_TEST_WATCHDOG"

// A process that is stopped ends; one that runs does not, nor one whose watchdog is off.
func TestWatchdog(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	if how := os.Getenv(watchdogVar); how != "" {
		const limit = 400 * time.Millisecond
		w := StartWatchdog(limit)
		if w == nil {
			t.Fatal("the kernel has no such timer")
		}
		defer w.Close()
		if how == "off" {
			w.Set(0)
		} else {
			time.Sleep(2 * limit) // which is what is tested: it lives
		}
		os.Stdout.WriteString("runs\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	for how, want := range map[string]syscall.Signal{"on": syscall.SIGKILL, "off": 0} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestWatchdog$")
		cmd.Env = append(os.Environ(), watchdogVar+"="+how)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "runs\n" {
			t.Fatalf("%s: it says %q, %v", how, line, err)
		}
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		if how == "off" {
			testenv.Await(t, time.Minute, "the process to stop", func() bool {
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
				return err == nil && bytes.Contains(text, []byte(") T "))
			})
			time.Sleep(time.Second) // which is what is tested: it stays
			_ = cmd.Process.Signal(syscall.SIGCONT)
			in.Close()
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.Sys().(syscall.WaitStatus); got.Signaled() != (want != 0) || got.Signaled() && got.Signal() != want {
			t.Errorf("%s: it ended with %v", how, cmd.ProcessState)
		}
	}
}
