package apps

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

var update = flag.Bool("update", false, "write the table of docs/applications.md anew")

const script = "../../scripts/apps"

// launchers are the MPIs' own, as they are called on a small machine, by root.
var launchers = map[string]string{
	"openmpi": "mpirun.openmpi --allow-run-as-root --oversubscribe",
	"mpich":   "mpiexec.mpich",
}

const runLimit = 20 * time.Second // a run takes about one

func TestApplications(t *testing.T) {
	testenv.Part(t, testenv.Apps)
	path, err := exec.Command(script, "path").Output()
	root := strings.TrimSpace(string(path))
	if _, exists := os.Stat(root); err != nil || exists != nil {
		testenv.Unsupported(t, "there is no root of Debian trixie ("+root+"): as root, scripts/apps root makes it with debootstrap, from a mirror of Debian")
	}
	bin, all := commands(t), rows(t)
	for i := range all {
		r := &all[i]
		t.Run(r.name+"/"+r.mpi, func(t *testing.T) {
			r.version = version(t, root, r.packages)
			for _, np := range r.np {
				own := r.start(t, bin, np, launchers[r.mpi])
				ours := r.start(t, bin, np, "gorun")
				for _, fault := range r.faults(own, np) {
					t.Errorf("np %d, its own launcher: %s", np, fault)
				}
				for what, how := range r.differences(own, ours, np) {
					if slices.Contains(r.unlike, what) {
						t.Logf("np %d: another %s, as told (%s): %s", np, what, r.reason, how)
						continue
					}
					t.Errorf("np %d: another %s: %s", np, what, how)
				}
			}
		})
	}
	if *update && !t.Failed() {
		testenv.Page(t, page, "table", table(all), true)
	}
}

// commands builds gorun's commands into a directory, as make build does.
func commands(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, argv := range [][]string{{"go", "build", "-o", dir, "./cmd/gorun", "./cmd/gorun-agent"}, {"scripts/build-pmix", dir}} {
		build := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return dir
}

// version is that of the first package, without what Debian adds. All must be installed in the root.
func version(t *testing.T, root string, packages []string) (version string) {
	t.Helper()
	query := exec.CommandContext(t.Context(), "dpkg-query", append([]string{"--admindir=" + root + "/var/lib/dpkg", "-W", "-f", `${Version}\n`}, packages...)...)
	out, err := query.Output()
	if err != nil {
		testenv.Unsupported(t, fmt.Sprintf("the root lacks one of the packages %v: scripts/apps root installs it", packages))
	}
	version, _, _ = strings.Cut(string(out), "\n")
	if _, rest, ok := strings.Cut(version, ":"); ok {
		version = rest
	}
	if end := strings.LastIndexByte(version, '-'); end > 0 {
		version = version[:end]
	}
	return version
}

// outcome is how a run went.
type outcome struct {
	status   int
	out, err string
	left     string // processes, files and segments
}

// start runs an application in the root, in a new directory with its files.
func (r *row) start(t *testing.T, bin string, np int, launcher string) (o outcome) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	err := os.Mkdir(dir, 0o777)
	for _, f := range r.files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	inRoot := func(line string) *exec.Cmd {
		return exec.CommandContext(testenv.Deadline(t, runLimit), script, "in", dir, bin, "sh", "-c", line)
	}
	if r.first != "" {
		if out, err := inRoot(r.first).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", r.first, err, out)
		}
	}
	line := launcher + " -np " + strconv.Itoa(np) + " " + r.run
	cmd := inRoot(line)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err = cmd.Run()
	o.out, o.err, o.status = stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	if o.status < 0 {
		t.Fatalf("%s: %v\n%s%s", line, err, o.out, o.err)
	}
	t.Logf("%s: status %d after %.1f s", line, o.status, time.Since(begin).Seconds())
	left, err := os.ReadFile(dir + ".left")
	if err != nil {
		t.Fatal(err)
	}
	o.left = string(left)
	return o
}

// faults are what makes a run no proof of anything: another number of ranks, no result.
func (r *row) faults(o outcome, np int) (list []string) {
	text, ranks := o.out+o.err, 0
	matches := r.ranks.FindAllStringSubmatch(text, -1)
	for _, m := range matches {
		if r.ranks.NumSubexp() == 0 {
			ranks++
			continue
		}
		n, _ := strconv.Atoi(m[1])
		ranks = max(ranks, n+max(0, r.ranks.SubexpIndex("others"))) // the group's number is 1
	}
	if ranks != np {
		list = append(list, fmt.Sprintf("%d ranks: %q gives %q", ranks, r.ranks, matches))
	}
	if !r.result.MatchString(text) {
		list = append(list, fmt.Sprintf("no result: nothing matches %q", r.result))
	}
	return list
}

// differences compares gorun's run with the other, by what differs. A launcher owes no order to the
// lines of several ranks.
func (r *row) differences(own, ours outcome, np int) map[string]string {
	found := make(map[string]string)
	if own.status != ours.status {
		found["status"] = fmt.Sprintf("%d, and %d under gorun", own.status, ours.status)
	}
	if faults := r.faults(ours, np); faults != nil {
		found["result"] = strings.Join(faults, "; ")
	}
	lacks, more := compare(r.settled(own.out), r.settled(ours.out))
	errLacks, errMore := compare(r.settled(own.err), r.settled(ours.err))
	if lacks, more = append(lacks, errLacks...), append(more, errMore...); lacks != nil || more != nil {
		found["output"] = fmt.Sprintf("gorun's lacks %d lines and has %d others\n- %s\n+ %s", len(lacks), len(more), some(lacks), some(more))
	}
	if ours.left != "" {
		found["left"] = ours.left
	}
	return found
}

// some are the first of many lines.
func some(lines []string) string { return strings.Join(lines[:min(len(lines), 20)], "\n  ") }

// settled are the lines of a text without what varies, in order.
func (r *row) settled(text string) []string {
	for _, v := range r.varies {
		text = v.ReplaceAllString(text, "")
	}
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

// compare gives the lines of a that b lacks, and those that b has beyond a's. Both are sorted.
func compare(a, b []string) (lacks, more []string) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			lacks, a = append(lacks, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			more, b = append(more, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return lacks, more
}
