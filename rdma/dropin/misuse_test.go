//go:build linux

package dropin_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/testenv/abicheck"
)

// The C programs of testdata hold the shim to what libibverbs does with objects that are destroyed twice, in use or foreign, the
// loader to what it promises of signals, forks and programs that load libibverbs late, and librdmacm to its events. They use abi.h and cma.h, as the libraries do,
// and print what differs.
func TestProgramsOfC(t *testing.T) {
	dir := build(t)
	for name, says := range map[string]string{"misuse": "", "process": "", "loaded": "",
		"connect": "gorun-verbs: 192.0.2.1 is no address of this machine: programs on several hosts reach each other by IPv4, with gorun-verbs --key\n"} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), name)
			cc := exec.Command(testenv.Need(t, "gcc"), "-Wall", "-Wextra", "-pthread", "-o", out, filepath.Join("testdata", name+".c"), "-ldl", "-Wl,--as-needed",
				filepath.Join(dir, "verbs", "librdmacm.so.1"), filepath.Join(dir, "verbs", "libibverbs.so.1"))
			if said, err := cc.CombinedOutput(); err != nil {
				t.Fatalf("gcc: %v\n%s", err, said)
			}
			cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), filepath.Join(dir, "gorun-verbs"), "--fabric", fabric(t), out)
			cmd.Env = append(os.Environ(), "GODEBUG=")
			if said, err := cmd.CombinedOutput(); err != nil || string(said) != says+"all is well\n" {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// TestTrouble: --check finds each mistake of testdata/trouble.c and nothing else, and --adverse brings what it says.
func TestTrouble(t *testing.T) {
	dir := build(t)
	program := filepath.Join(t.TempDir(), "trouble")
	cc := exec.Command(testenv.Need(t, "gcc"), "-Wall", "-Wextra", "-o", program, "testdata/trouble.c", filepath.Join(dir, "verbs", "libibverbs.so.1"))
	if said, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, said)
	}
	run := func(t *testing.T, option, name string) (string, error) {
		cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), filepath.Join(dir, "gorun-verbs"), "--fabric", fabric(t), option, program, name)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	const check = "gorun-verbs: check: "
	for name, want := range map[string]string{
		"none":     "",
		"touched":  check + `queue pair 0x[0-9a-f]+: the memory that request 0x11 sends changed before .*\n`,
		"silent":   check + `queue pair 0x[0-9a-f]+: its last 16 requests ask for no completion .*\n`,
		"full":     check + `queue pair 0x[0-9a-f]+: a post beyond its send queue: 16 requests .*, max_send_wr is 16\n`,
		"receives": check + `queue pair 0x[0-9a-f]+: a post beyond its receive queue: max_recv_wr is 16\n`,
		"gone":     check + `queue pair 0x[0-9a-f]+: request 0x21: rkey .*: the peer has deregistered .*\n`,
		"outside":  check + `queue pair 0x[0-9a-f]+: request 0x21: rkey .*, 64 bytes: range: .*\n`,
		"freed": check + `queue pair 0x[0-9a-f]+: the memory that request 0x31 sends was unmapped before .*\n` +
			check + `the memory of the region with lkey .*, 4096 bytes at .*, was unmapped before ibv_dereg_mr.*\n`,
		"grh": check + `an address without a GRH .*\n`,
	} {
		t.Run(name, func(t *testing.T) {
			said, err := run(t, "--check", name)
			if err != nil || !regexp.MustCompile(`\A`+want+`over\n\z`).MatchString(said) {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
	t.Run("abort", func(t *testing.T) {
		said, err := run(t, "--check-abort", "touched")
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT || strings.Contains(said, "over") {
			t.Errorf("%v\n%s", err, said)
		}
	})
	for _, kind := range []string{"limits", "link", "errors"} {
		t.Run(kind, func(t *testing.T) {
			if said, err := run(t, "--adverse=7,"+kind, kind); err != nil || said != "over\n" {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// The libraries export what their tables say, and libibverbs two functions of the C library.
func TestExports(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for dir, library := range libraries {
		out, err := exec.Command(testenv.Need(t, "nm"), "-D", "--defined-only", filepath.Join(build(t), "verbs", library+".so.1")).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		if dir == "shim" {
			want["sigaction"], want["signal"] = true, true
		}
		for _, s := range symbols(t, dir) {
			want[s.name+"@@"+s.node] = true
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			name := f[len(f)-1]
			if !want[name] && f[len(f)-2] != "A" {
				t.Errorf("%s exports %s, which its table does not have", library, name)
			}
			delete(want, name)
		}
		for name := range want {
			t.Errorf("%s does not export %s", library, name)
		}
	}
}

// TestConnectionDeclarations holds cma.h to the header of librdmacm. Sources with functions that take an enumeration there and an
// int here do not compile with it.
func TestConnectionDeclarations(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, dir := range abicheck.Installed(t, "rdma/rdma_cma.h", "GORUN_TEST_RDMACM_HEADERS", "librdmacm-dev", "/usr/include") {
		abicheck.Run(t, abicheck.Header{Own: "cm/cma.h", Sources: []string{"cm/channel.c", "cm/pair.c"}, Flags: []string{"-I" + dir, "-Wno-enum-compare"}})
	}
}
