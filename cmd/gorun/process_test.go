package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// testTime is what the command may take.
const testTime = 30 * time.Second

// The test binary is also the command, where the variable asks for it.
const asCommand = "GORUN_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command starts the command in a process group of its own, as a shell does.
func command(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testenv.Deadline(t, testTime), exe, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

// TestTerminalStop is ^Z and fg.
func TestTerminalStop(t *testing.T) {
	cmd, out := command(t, "-np", "1", "sh", "-c", "echo $$; exec sleep 600")
	var rank int
	if _, err := fmt.Fscan(out, &rank); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("after TSTP: status %#x, %v, want it stopped", status, err)
	}
	// It has been sent the signal; it stops when it comes to run.
	testenv.Await(t, testTime, "the rank is stopped (state T)", func() bool { return state(t, rank) == "T" })
	for _, s := range []unix.Signal{unix.SIGCONT, unix.SIGTERM} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 143 {
		t.Errorf("status %d (%v), want 143", got, cmd.ProcessState)
	}
}

// state is a process's state as /proc has it.
func state(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return after[:1]
}

// TestNobodyReadsStandardError writes to it while the job runs, at its end.
func TestNobodyReadsStandardError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testenv.Deadline(t, testTime), exe, "-vv", "-np", "2", "sh", "-c", "echo heard; echo unheard >&2; exit 3")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stderr = w
	_ = cmd.Run()
	w.Close()
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("status %d (%v), want that of the ranks, 3", got, cmd.ProcessState)
	}
}

// TestMemory: gorun with 64 ranks keeps to 30 MiB, after a burst of output too.
func TestMemory(t *testing.T) {
	most := 30 << 10 // KiB
	if arch.RaceEnabled {
		most *= 3 // the detector keeps a shadow of what is used
	}
	cmd, out := command(t, "-np", "64", "sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo; echo ready; exec sleep 600")
	for ready := 0; ready < 64; {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "ready\n" {
			ready++
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	var peak int
	if _, err := fmt.Sscan(text, &peak); err != nil {
		t.Fatalf("%v in\n%s", err, status)
	}
	if peak > most {
		t.Errorf("gorun has had %d KiB resident, want %d or less", peak, most)
	}
	t.Logf("%d KiB at most", peak)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("it ended with %v", err)
	}
}
