package host

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestFindMPI(t *testing.T) {
	for _, c := range []struct {
		name string
		maps string
		want string
		sure bool
	}{
		{"nothing", "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libc.so.6\n7f00-7f01 rw-p 0 0:0 0 [stack]\n7ff0-7ff1 rw-p 0\n", "", false},
		{"linked", "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libmpi.so.40.30.4\n", "Open MPI", false},
		{"initialised", "1 /usr/lib/libmpi.so.40.30.4\n1 /usr/lib/openmpi3/mca_pml_ob1.so\n", "Open MPI", true},
		{"initialised, 5.0", "1 /usr/lib/libmpi.so.40.40.7\n1 /dev/shm/sm_segment.a.0.e9980000.0\n", "Open MPI", true},
		{"mpich", "1 /usr/lib/libmpich.so.12.1.0\n1 /usr/lib/libc.so.6", "MPICH", false},
		{"mpich initialised", "1 /usr/lib/libmpich.so.12\n1 /usr/lib/ucx/libuct_cma.so.0\n", "MPI", true},
		{"abi", "1 /x/libmpi_abi.so.0\n", "MPI", false},
		{"no library of that name", "1 /x/notlibmpi.so\n1 /usr/lib/libmpi.so.40/other\n", "", false},
	} {
		l, ok := findMPI(mappedFiles([]byte(c.maps)))
		if l.name != c.want || l.sure != c.sure || ok != (c.want != "") {
			t.Errorf("%s: got %+v, %v, want %q, sure %v", c.name, l, ok, c.want, c.sure)
		}
	}
}

func TestReadELFNamesLibraries(t *testing.T) {
	shell := testenv.Need(t, "bash")
	file, err := os.Open(shell)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got, _ := readELF(file)
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

// FuzzNeededBy: no file makes it fail, or read without bound.
func FuzzNeededBy(f *testing.F) {
	if shell, err := os.ReadFile("/bin/sh"); err == nil {
		f.Add(shell[:min(len(shell), 200<<10)])
	}
	f.Add([]byte("\x7fELF\x02\x01"))
	f.Add([]byte("#!/bin/sh\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if got, _ := readELF(bytes.NewReader(file)); len(got) > 1<<16 {
			t.Errorf("%d libraries", len(got))
		}
	})
}
