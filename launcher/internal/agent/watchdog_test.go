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

// A process that is stopped goes on, and one that runs does as before; one whose watchdog is off stays stopped.
func TestWatchdog(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	if how := os.Getenv(watchdogVar); how != "" {
		const limit = 400 * time.Millisecond
		w := StartWatchdog(limit, syscall.SIGCONT)
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
	for _, how := range []string{"on", "off"} {
		cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), os.Args[0], "-test.run", "^TestWatchdog$")
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
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}
}
