//go:build linux

package rxevm

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// busybox's cpio unpacks what the kernel will.
func TestArchiveUnpacks(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	busybox := testenv.Need(t, "busybox")
	var b bytes.Buffer
	a := newArchive(&b)
	files := map[string]string{"/a": "1", "/dir/sub/b": "", "/dir/sub/c": "12345", "/dir/d": strings.Repeat("long", 1<<20)}
	for name, text := range files {
		a.file(name, []byte(text))
		a.file(name, []byte("a second one"))
	}
	a.link("/dir/link", "../a")
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(busybox, "cpio", "-i", "-d")
	cmd.Dir, cmd.Stdin = dir, &b
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files["/dir/link"] = "1"
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
		}
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("no space")
	}
	return len(b), nil
}

func TestArchiveTellsOfFailedWrites(t *testing.T) {
	for _, room := range []int{0, 1 << 20, 3 << 20} {
		a := newArchive(&failing{room})
		a.file("/a", make([]byte, 2<<20))
		a.file("/b", make([]byte, 2<<20))
		if err := a.close(); err == nil || err.Error() != "no space" {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := installed()
	if !errors.Is(err, ErrMissing) {
		t.Fatalf("nothing is in the PATH: %v", err)
	}
	for _, word := range []string{"ibv_rc_pingpong", "sudo apt-get install", " qemu-system-x86", " iproute2", " perftest"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %q", word, err)
		}
	}
	if list := Packages(); strings.Count(strings.Join(list, " "), "iproute2") != 1 {
		t.Errorf("packages %q", list)
	}
}

func TestParseLdd(t *testing.T) {
	for name, c := range map[string]struct{ out, want, err string }{
		"dynamic": {
			"\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n",
			"/lib/x86_64-linux-gnu/libc.so.6 /lib64/ld-linux-x86-64.so.2", "",
		},
		"loader by name": {"\tld-linux.so => /lib64/ld-linux-x86-64.so.2 (0x7f)\n", "/lib64/ld-linux-x86-64.so.2", ""},
		"own loader":     {"\t/lib64/ld.so => /opt/ld.so (0x7f)\n", "/lib64/ld.so /opt/ld.so", ""},
		"not found":      {"\tlibibverbs.so.1 => not found\n", "", "libibverbs.so.1"},
	} {
		list, err := parseLdd("program", c.out)
		if got := strings.Join(list, " "); got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %s, %v; want %s, %s", name, got, err, c.want, c.err)
		}
	}
}

// What the loader would load, for programs of this machine.
func TestLibraries(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	script := filepath.Join(t.TempDir(), "script")
	for name, text := range map[string]string{"script": "#!/bin/sh\n", "short": "\x7fE"} {
		if list, err := libraries(script, []byte(text)); list != nil || err != nil {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
	dash := testenv.Need(t, "dash")
	data, err := os.ReadFile(dash)
	if err != nil {
		t.Fatal(err)
	}
	list, err := libraries(dash, data)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, lib := range list {
		to, err := placed(lib)
		if err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(to, "/lib") {
			t.Errorf("%s goes to %s, where the guest has a link", lib, to)
		}
		names = append(names, filepath.Base(to))
	}
	if all := strings.Join(names, " "); !strings.Contains(all, "libc.so.6") || !strings.Contains(all, "ld-linux") {
		t.Errorf("dash needs %q", all)
	}
}
