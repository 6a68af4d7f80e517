package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestPMIxVersions runs programs of one system under gorun of another, as a container does: the server is the libpmix that
// gorun-pmix finds there, its clients are those that come with the program. The systems are this one and roots of others on
// this machine: that of make apps, and those of TEST_ROOTS, a list as PATH is one. Each runs clients of its own, and
// programs of its Open MPI where it has a compiler for them. Groups are left out: each version has words of its own for them,
// which is why sessions of MPI need libraries of one version.
func TestPMIxVersions(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	roots := []string{"/"}
	for _, root := range append(filepath.SplitList(os.Getenv("TEST_ROOTS")), filepath.Join(cache, "gorun", "apps", "root")) {
		if found, _ := filepath.Glob(filepath.Join(root, "usr/lib/*/pmix2/lib/libpmix.so.2")); found != nil {
			roots = append(roots, root)
		}
	}
	if len(roots) == 1 {
		testenv.Foreign(t, "needs another root with a libpmix: make apps makes one, TEST_ROOTS names others")
	}
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs root that may mount: %v: %s", err, out))
	}
	gorun, err := exec.LookPath("gorun")
	if err != nil {
		t.Fatal(err)
	}
	// What all of them see at the same path.
	dir, err := os.MkdirTemp("/tmp", "gorun-versions-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, program := range []string{"gorun", "gorun-pmix"} {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(gorun), program))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, program), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"pmix", "ring"} {
		data, err := os.ReadFile(filepath.Join("..", "testdata", "mpi", program+".c"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, program+".c"), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// in runs a command in a root, in which this machine is /mnt. Its mounts end with it.
	var mounts strings.Builder
	for _, root := range roots[1:] {
		for _, tree := range []string{"/proc", "/sys", "/dev", "/tmp"} {
			fmt.Fprintf(&mounts, "mount --rbind %s %s\n", tree, shellWord(root+tree))
		}
	}
	for _, root := range roots[1:] {
		fmt.Fprintf(&mounts, "mount --rbind / %s\n", shellWord(root+"/mnt"))
	}
	in := func(root, command string) (string, int) {
		t.Helper()
		script := fmt.Sprintf("%sexec chroot %s sh -c %s", mounts.String(), shellWord(root), shellWord("cd "+dir+" && "+command))
		cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), "unshare", "--mount", "--propagation", "private", "sh", "-ec", script)
		out, err := cmd.CombinedOutput()
		code, err := status(err)
		if err != nil {
			t.Fatal(err)
		}
		return string(out), code
	}
	versions, programs := make([]string, len(roots)), make([]string, len(roots))
	for i, root := range roots {
		name := fmt.Sprint(i)
		out, _ := in(root, "./gorun-pmix --probe")
		if m := regexp.MustCompile(`"version":"(?:OpenPMIx )?([^" ]+)`).FindStringSubmatch(out); m != nil {
			versions[i] = m[1]
		} else {
			t.Logf("%s serves no PMIx: %s", root, out)
		}
		if out, code := in(root, fmt.Sprintf("gcc -o pmix%s pmix.c $(for d in /usr/lib/*/pmix2; do echo -I$d/include -L$d/lib -Wl,-rpath,$d/lib; done) -lpmix", name)); code != 0 {
			t.Logf("%s has no clients of PMIx: %s", root, out)
			continue
		}
		programs[i] = "pmix" + name
		if _, code := in(root, "mpicc.openmpi -o ring"+name+" ring.c"); code != 0 {
			t.Logf("%s has no compiler of Open MPI", root)
		} else {
			programs[i] += " ring" + name
		}
	}
	for i, server := range roots {
		for j, client := range roots {
			if i == j || versions[i] == "" || programs[j] == "" {
				continue
			}
			t.Run(fmt.Sprintf("server %s, client %s", versions[i], versions[j]), func(t *testing.T) {
				there := client
				if i > 0 {
					there = "/mnt" + client
				}
				run := func(want int, words string) string {
					t.Helper()
					out, code := in(server, fmt.Sprintf("./gorun --timeout 30 -np 2 chroot %s sh -c %s", shellWord(there), shellWord("cd "+dir+" && exec "+words)))
					if code != want {
						t.Errorf("%s: status %d, want %d:\n%s", words, code, want, out)
					}
					return out
				}
				out := run(0, "./pmix"+fmt.Sprint(j)+" 0:put a zero - 1:put a one - commit collect get 0 a get 1 a job PMIX_JOB_SIZE 0:publish k text - fence lookup k fence 0:unpublish k - child show twice end show done")
				for _, line := range []string{"a = zero", "a = one", "PMIX_JOB_SIZE = 2", "k = text", "twice", "child: 0", "done"} {
					for rank := range 2 {
						if strings.Count(out, fmt.Sprintf("%d %s\n", rank, line)) != 1 {
							t.Fatalf("want one line \"%d %s\":\n%s", rank, line, out)
						}
					}
				}
				if out := run(7, "./pmix"+fmt.Sprint(j)+" fence 1:abort 7 - 0:stay"); !strings.Contains(out, "aborted the job with status 7") {
					t.Errorf("abort: %s", out)
				}
				run(137, "./pmix"+fmt.Sprint(j)+" fence 1:die - 0:stay")
				if slices.Contains(strings.Fields(programs[j]), "ring"+fmt.Sprint(j)) {
					if out := run(0, "./ring"+fmt.Sprint(j)); !strings.Contains(out, "the token went round 2 ranks") {
						t.Errorf("Open MPI: %s", out)
					}
				}
			})
		}
	}
}

// shellWord is a word as a shell reads it.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
