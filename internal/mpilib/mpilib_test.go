package mpilib

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// build makes a library or a program of one line of C in dir.
func build(t *testing.T, file string, args ...string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "p.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.Need(t, "gcc"), append([]string{"-o", file, source}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %q: %v: %s", args, err, out)
	}
	return file
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	shared := func(name, soname string) string {
		return build(t, filepath.Join(dir, name), "-shared", "-fPIC", "-Wl,-soname,"+soname)
	}
	mpich := shared("mpich/libmpi_abi.so.1", Standard)
	own := shared("old-mpich/libmpich.so.12", "libmpich.so.12")
	pal := shared("openmpi/libopen-pal.so.80", "libopen-pal.so.80")
	open := build(t, filepath.Join(dir, "any/libmpi_abi.so.1.0"), "-shared", "-fPIC", "-Wl,-soname,"+Standard, "-Wl,--no-as-needed", pal)
	text, foreign := filepath.Join(dir, "text.so"), filepath.Join(dir, "foreign.so")
	head, _ := os.ReadFile(mpich)
	head[18]++
	for name, data := range map[string][]byte{text: []byte("INPUT(x)"), foreign: head} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		path []string // LD_LIBRARY_PATH
		want string   // the file, or what the error says
		mpi  string
	}{
		{"mpich", []string{"old-mpich", "mpich"}, mpich, MPICH},
		{"MPICH", []string{"any", "mpich"}, mpich, MPICH},
		{"openmpi", []string{"mpich", "any"}, open, OpenMPI},
		{mpich, nil, mpich, MPICH},
		{filepath.Dir(mpich), nil, mpich, MPICH},
		{"lam", nil, "expected gorun, mpich, openmpi, or the path", ""},
		{own, nil, "it is libmpich.so.12, of an MPI's own ABI", ""},
		{filepath.Dir(own), nil, "no libmpi_abi.so.1 in it", ""},
		{filepath.Join(dir, "none.so"), nil, "no such file or directory", ""},
		{text, nil, "text.so is no library of 64 bits", ""},
		{foreign, nil, "foreign.so is a library for another kind of machine", ""},
	} {
		path := "LD_LIBRARY_PATH="
		for _, p := range c.path {
			path += filepath.Join(dir, p) + ":"
		}
		got, err := Find(c.name, []string{path})
		if err != nil && (c.mpi != "" || !strings.Contains(err.Error(), c.want)) || err == nil && (got.Path != c.want || got.MPI != c.mpi) {
			t.Errorf("%s in %s: got %+v, %v, want %s of %q", c.name, path, got, err, c.want, c.mpi)
		}
	}
}

func TestUnfit(t *testing.T) {
	dir := t.TempDir()
	abi := build(t, filepath.Join(dir, Standard), "-shared", "-fPIC", "-Wl,-soname,"+Standard)
	own := build(t, filepath.Join(dir, "libmpi.so.40"), "-shared", "-fPIC", "-Wl,-soname,libmpi.so.40")
	program := func(name string, args ...string) string { return build(t, filepath.Join(dir, name), args...) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		program("abi", "-Wl,--no-as-needed", abi):                                                "",
		program("runpath", "-Wl,--no-as-needed", abi, "-Wl,--enable-new-dtags", "-Wl,-rpath,/r"): "",
		program("rpath", "-Wl,--no-as-needed", abi, "-Wl,--disable-new-dtags", "-Wl,-rpath,/r"):  "its RPATH (/r) comes before",
		program("own", "-Wl,--no-as-needed", own):                                                "it is linked with libmpi.so.40, of an MPI's own ABI",
		program("static", "-static"):                                                             "it is static",
		self:                                                                                     "it is a program of Go",
		"/bin/sh":                                                                                "",
		filepath.Join(dir, "none"):                                                               "",
	} {
		standard := Library{Path: abi, MPI: MPICH, Soname: Standard}
		if got := standard.Unfit(file); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

func TestReadNamesLibraries(t *testing.T) {
	shell := testenv.Need(t, "bash")
	file, err := os.Open(shell)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := Read(file).Needed
	if !slices.Contains(got, "libc.so.6") {
		t.Errorf("%s: got %q, want libc.so.6 among them", shell, got)
	}
	// ldd knows more, as it follows libraries, but nothing less.
	out, err := exec.Command("ldd", shell).Output()
	if err == nil {
		for _, name := range got {
			if !strings.Contains(string(out), name) {
				t.Errorf("%s is not in what ldd says:\n%s", name, out)
			}
		}
	}
}

// FuzzRead: no file makes it fail, or read without bound.
func FuzzRead(f *testing.F) {
	if shell, err := os.ReadFile("/bin/sh"); err == nil {
		f.Add(shell[:min(len(shell), 200<<10)])
	}
	f.Add([]byte("\x7fELF\x02\x01"))
	f.Add([]byte("#!/bin/sh\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if got := Read(bytes.NewReader(file)).Needed; len(got) > 1<<16 {
			t.Errorf("%d libraries", len(got))
		}
	})
}

// TestFindOwn: gorun's own library is beside the program, with its engine.
func TestFindOwn(t *testing.T) {
	if _, err := Find("gorun", nil); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("without it: %v", err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(program), "abi")
	file := build(t, filepath.Join(dir, Standard), "-shared", "-fPIC", "-Wl,-soname,"+Standard)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "libgorun-mpi.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Find("gorun", nil)
	if err != nil || l.MPI != Own || l.Path != file {
		t.Errorf("got %+v, %v; want %s of %s", l, err, file, Own)
	}
	// Programs of MPICH load it where the file for them is there.
	mpich := build(t, filepath.Join(dir, "libmpich.so.12"), "-shared", "-fPIC", "-Wl,-soname,libmpich.so.12")
	program = build(t, filepath.Join(t.TempDir(), "mpich"), "-Wl,--no-as-needed", mpich)
	if got := l.Unfit(program); got != "" || l.Faces()["libmpich.so.12"] != mpich {
		t.Errorf("with %s: got %q", mpich, got)
	}
	if beside, err := Open(mpich); err != nil || beside.MPI != Own {
		t.Errorf("%s: got %+v, %v; want one of %s", mpich, beside, err, Own)
	}
	ofOpenMPI := build(t, filepath.Join(t.TempDir(), "open"), "-Wl,--no-as-needed", build(t, filepath.Join(t.TempDir(), "libmpi.so.40"), "-shared", "-fPIC", "-Wl,-soname,libmpi.so.40"))
	if got, want := l.Unfit(ofOpenMPI), "expected libmpi_abi.so.1 or libmpich.so.12: "; !strings.Contains(got, want) {
		t.Errorf("of Open MPI: got %q, want %q", got, want)
	}
	if err := os.Remove(mpich); err != nil {
		t.Fatal(err)
	}
	if got, want := l.Unfit(program), "it is linked with libmpich.so.12, of an MPI's own ABI"; !strings.HasPrefix(got, want) {
		t.Errorf("without %s: got %q, want %q", mpich, got, want)
	}
}
