// Package visit is how one command of a user looks at a job of the same user that runs: gorun-info top at gorun.
//
// A job pays nothing for it before somebody looks: gorun has no socket for visitors. The visitor listens at a name in the abstract
// namespace that is made of gorun's pid, and sends gorun a [Signal], which only the same user, or root, can. Gorun
// connects to it, and answers each question with a [Report]. Both look at whose process the other one is, since any user may
// listen at a name.
package visit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// Signal tells gorun of a visitor. A program of Go that does not know it does nothing, as a gorun of another version; others it ends,
// so nobody sends it to what does not catch it, as Go's runtime does in every program.
const Signal = unix.SIGIO

// Limits of a visit.
const (
	comeLimit = 5 * time.Second  // for gorun to connect
	sayLimit  = 10 * time.Second // for a question's answer, and for the visitor to take it
)

// A Report is what a job does at a time.
type Report struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"` // gorun's command line
	Begun   time.Time `json:"begun"`
	Ranks   []Rank    `json:"ranks"` // none: they are not started yet, or have ended
}

// A Rank is what one does.
type Rank struct {
	Group int           `json:"group,omitempty"` // 0: of the job itself; else of a spawn
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	CPU   time.Duration `json:"cpu_ns"`
	RSS   int64         `json:"rss_bytes"`
	Calls uint64        `json:"calls,omitempty"` // of MPI so far, with gorun --profile
	Lines []string      `json:"doing"`
}

// name is where the visitors of a process listen.
func name(pid int) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@gorun-visit-" + strconv.Itoa(pid)}
}

// Receive answers a visitor's questions until it leaves. It is called when Signal has come.
func Receive(report func() *Report) error {
	conn, err := net.DialUnix("unix", nil, name(os.Getpid()))
	if err != nil {
		return err
	}
	defer conn.Close()
	who, err := peerOf(conn)
	if err != nil {
		return err
	}
	if uid := int(who.Uid); uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("a visitor is user %d", uid)
	}
	out := json.NewEncoder(conn)
	for question := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, question); err != nil {
			return nil // it has left
		}
		r := report()
		if err := errors.Join(conn.SetWriteDeadline(time.Now().Add(sayLimit)), out.Encode(r)); err != nil {
			return err
		}
	}
}

// A Visit looks at a job.
type Visit struct {
	conn *net.UnixConn
	in   *json.Decoder
}

func listen(pid int) (*net.UnixListener, error) { return net.ListenUnix("unix", name(pid)) }

// Begin begins one, at the job of a gorun process.
func Begin(pid int) (*Visit, error) {
	if err := catches(pid); err != nil {
		return nil, err
	}
	l, err := listen(pid)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("another visitor looks at gorun (pid %d)", pid)
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := l.SetDeadline(time.Now().Add(comeLimit)); err != nil {
		return nil, err
	}
	if err := unix.Kill(pid, Signal); err != nil {
		return nil, fmt.Errorf("gorun (pid %d): %w", pid, err)
	}
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, fmt.Errorf("process %d does not answer within %v: is it a gorun of this version, and not stopped?", pid, comeLimit)
		}
		if who, err := peerOf(conn); err == nil && int(who.Pid) == pid {
			return &Visit{conn, json.NewDecoder(conn)}, nil
		}
		_ = conn.Close()
	}
}

// Ask asks what the job does; io.EOF: it has ended.
func (v *Visit) Ask() (*Report, error) {
	_ = v.conn.SetDeadline(time.Now().Add(sayLimit))
	if _, err := v.conn.Write([]byte{1}); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil, io.EOF
	} else if err != nil {
		return nil, err
	}
	var r Report
	err := v.in.Decode(&r)
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// Close ends it.
func (v *Visit) Close() { _ = v.conn.Close() }

func peerOf(conn *net.UnixConn) (who *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if cerr := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return nil, cerr
	}
	return who, err
}

// catches tells whether a process catches Signal.
func catches(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fmt.Errorf("there is no process %d", pid)
	}
	for line := range strings.Lines(string(text)) {
		if mask, is := strings.CutPrefix(line, "SigCgt:"); is {
			if n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); err == nil && n&(1<<(uint(Signal)-1)) != 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("process %d is no gorun", pid)
}

// A Job is one that can be visited.
type Job struct {
	PID     int
	Program string
}

// Jobs are those of this user, of all users for root, by pid.
func Jobs() (list []Job) {
	files, _ := filepath.Glob("/proc/[0-9]*/exe")
	own := os.Geteuid()
	parents := make(map[Job]Job)
	for _, file := range files {
		exe, err := os.Readlink(file)
		if err != nil || filepath.Base(strings.TrimSuffix(exe, " (deleted)")) != "gorun" {
			continue
		}
		var st unix.Stat_t
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		s, ok := proc.Of(pid)
		if !ok || unix.Stat(filepath.Dir(file), &st) != nil || own != 0 && int(st.Uid) != own || catches(pid) != nil {
			continue
		}
		j := jobOf(pid)
		list, parents[j] = append(list, j), jobOf(s.Parent)
	}
	slices.SortFunc(list, func(a, b Job) int { return a.PID - b.PID })
	// What gorun has forked and not yet become another program looks like it.
	return slices.DeleteFunc(slices.Clone(list), func(j Job) bool {
		return parents[j].Program == j.Program && slices.Contains(list, parents[j])
	})
}

func jobOf(pid int) Job {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return Job{pid, strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))}
}
