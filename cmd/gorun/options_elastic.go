package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// elasticSettings are what --elastic and the options beside it say.
type elasticSettings struct{ elastic launcher.Elastic }

func setElastic(s *settings, value string) error {
	low, high, both := strings.Cut(value, ":")
	least, err := strconv.ParseUint(low, 10, 16)
	most, err2 := strconv.ParseUint(high, 10, 16)
	if !both || err != nil || err2 != nil || least < 1 || most < least {
		return unfit(value, "the least and the greatest number of ranks; try --elastic 2:8")
	}
	s.elastic.Min, s.elastic.Max = int(least), int(most)
	return nil
}

func setDiscover(s *settings, value string) error {
	if value == "" {
		return unfit(value, "a program that prints hosts; try --discover-hosts ./hosts.sh")
	}
	s.discover = value
	return nil
}

// finishElastic gives the job its limits.
func (s *settings) finishElastic() error {
	switch {
	case s.elastic.Max > 0 && len(s.job.Hosts) == 0 && s.discover == "":
		return fmt.Errorf("--elastic %d:%d: found no hosts, expected some; try --discover-hosts PROGRAM, or -H a:2,b:2", s.elastic.Min, s.elastic.Max)
	case s.elastic.Max > 0:
		s.job.Elastic = &s.elastic
	case s.discover != "":
		return fmt.Errorf("--discover-hosts %s: found no --elastic, expected it beside; try --elastic 2:8", s.discover)
	case s.elastic.Timeout > 0:
		return fmt.Errorf("--elastic-timeout %v: found no --elastic, expected it beside; try --elastic 2:8", s.elastic.Timeout)
	}
	return nil
}

// discoverer runs a program that prints the hosts that are there. A host without slots has one.
func discoverer(program string) (func(context.Context) ([]launcher.Host, error), error) {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; expected a program that prints hosts, one a line, as node01:4", err)
	}
	return func(ctx context.Context) ([]launcher.Host, error) {
		cmd := exec.CommandContext(ctx, path)
		var out, complaint bounded
		cmd.Stdout, cmd.Stderr = &out, &complaint
		// What it has started ends with it, and it ends with gorun: the thread that starts it must not end before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second
		if err := runGroup(cmd); err != nil {
			why := err.Error()
			if out.over || complaint.over {
				why = fmt.Sprintf("found more than %d KiB of output, expected a list of hosts", discoverMax>>10)
			} else if cause := context.Cause(ctx); cause != nil {
				why = cause.Error()
			}
			if lines := strings.Split(strings.TrimSpace(string(complaint.text)), "\n"); lines[0] != "" {
				why += ": " + lines[len(lines)-1]
			}
			return nil, fmt.Errorf("%s: %s", program, why)
		}
		if len(bytes.TrimSpace(out.text)) == 0 {
			return nil, nil
		}
		listed, err := hostfile.Parse(string(out.text), program)
		if err != nil {
			return nil, err
		}
		var hosts []launcher.Host
		for _, h := range merge(listed, add) {
			hosts = append(hosts, launcher.Host{Name: h.Name, Slots: cmp.Or(h.Slots, 1), Max: h.Max, User: h.User})
		}
		return hosts, nil
	}, nil
}

// runGroup is cmd.Run of a leader of a group, whose other processes end with it.
func runGroup(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	// While it is not reaped, its number is nobody else's.
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be none
	return cmd.Wait()
}

// discoverMax bounds what a program of --discover-hosts prints, which gorun keeps in memory.
const discoverMax = 1 << 20

// bounded keeps what is written to it, and fails once that is too much: the program then ends by SIGPIPE.
type bounded struct {
	text []byte
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > discoverMax {
		b.over = true
		return 0, io.ErrShortWrite
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
