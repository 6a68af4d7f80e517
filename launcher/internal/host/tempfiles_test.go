package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// What a process has open under one of the names goes, and nothing else does.
func TestFilesOfKilledRanksAreRemoved(t *testing.T) {
	testenv.NoLeaks(t)
	if _, err := os.Stat(memoryDirectory); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs POSIX shared memory: %v", err))
	}
	name := func(prefix string) string { return prefix + "test" + strconv.Itoa(os.Getpid()) }
	opened, replaced, others, own := name(tempPrefixes[0]), name(tempPrefixes[1]), name(tempPrefixes[0])+"o", filepath.Join(t.TempDir(), "own")
	for _, path := range []string{opened, replaced, others, own} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
	}
	// A rank that has started what has the files open.
	cmd := exec.Command("sh", "-c", `sh -c 'exec 5<"$1" 6<"$2" 7<"$3"; echo ready; read line; :' sh "$@"; :`, "sh", opened, replaced, own)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	var l tempFiles
	l.look([]int{cmd.Process.Pid, 1 << 30})
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	// One name is another file's by now.
	if err := os.WriteFile(replaced+"n", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replaced+"n", replaced); err != nil {
		t.Fatal(err)
	}
	l.remove(t.Logf)
	for path, want := range map[string]bool{opened: false, replaced: true, others: true, own: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: there: %v, want %v", path, err == nil, want)
		}
	}
}

func TestSharedFiles(t *testing.T) {
	for path, want := range map[string]bool{
		"/dev/shm/ucx_shm_posix_6e9c5ff9":           true,
		"/dev/shm/ucx_shm_posix_6e9c5ff9 (deleted)": false,
		"/dev/shm/mpich_shar_tmpkTInBg":             true,
		"/dev/shm/vader_segment.vm.0.1bab0001.0":    true,
		"/dev/shm/somebody's":                       false,
		"/memfd:gorun (deleted)":                    false,
		"socket:[1]":                                false,
	} {
		if got := isShared(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// Files that a library always forgets go, but for those that are older, or that somebody has open or mapped.
func TestForgottenFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	write(forgotten + "old").Close()
	info, err := os.Stat(filepath.Join(dir, forgotten+"old"))
	if err != nil {
		t.Fatal(err)
	}
	began := info.Sys().(*syscall.Stat_t).Ctim
	began.Nsec++
	for last := began; last.Nano() <= began.Nano(); { // a later time of the clock that files have
		f := write(forgotten + "left")
		f.Close()
		info, err := os.Stat(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		last = info.Sys().(*syscall.Stat_t).Ctim
	}
	write("others").Close()
	write(forgotten + "open")
	mapped := write(forgotten + "mapped")
	if err := mapped.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	m, err := syscall.Mmap(int(mapped.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(m)
	mapped.Close()
	if err := os.Symlink(filepath.Join(dir, "others"), filepath.Join(dir, forgotten+"link")); err != nil {
		t.Fatal(err)
	}
	removeForgotten(dir, began, t.Logf)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var stay []string
	for _, e := range entries {
		stay = append(stay, e.Name())
	}
	if got, want := strings.Join(stay, " "), "open_mpi.link open_mpi.mapped open_mpi.old open_mpi.open others"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
