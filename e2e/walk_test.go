package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestMainJobPassesThroughTheWalk runs the main job with coverage, and looks for
// every function that the walk in ARCHITECTURE.md names.
func TestMainJobPassesThroughTheWalk(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	text, err := os.ReadFile(filepath.Join("..", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walk, found := strings.Cut(string(text), "\n## The walk of the main job\n")
	walk, _, closed := strings.Cut(walk, "\n## ")
	if !found || !closed || !strings.Contains(walk, "`gorun -np 4 bin/a2a -m 32`") {
		t.Fatal("ARCHITECTURE.md has no walk of the main job")
	}
	// `package/path.Function` and `package/path.Type.Method`; Config.Verbs is a field.
	var named []string
	for _, m := range regexp.MustCompile("`([a-z][a-z0-9/]*)\\.([A-Za-z.]+)`").FindAllStringSubmatch(walk, -1) {
		if m[2] != "Config.Verbs" {
			named = append(named, m[1]+" "+m[2])
		}
	}
	if len(named) < 25 {
		t.Fatalf("found only %d functions in the walk: %q", len(named), named)
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOCOVERDIR="+data)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("..", "go", "build", "-cover", "-coverpkg=github.com/gorun-mpi/gorun/...", "-o", dir+string(filepath.Separator), "./cmd/gorun", "./cmd/a2a")
	run(dir, "./gorun", "-np", "4", "./a2a", "-m", "32")
	// Lines are FILE:LINE: FUNCTION PERCENT%.
	passed := map[string]bool{}
	for line := range strings.Lines(run("..", "go", "tool", "covdata", "func", "-i="+data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] != "0.0%" {
			file, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "github.com/gorun-mpi/gorun/"), ":")
			passed[filepath.ToSlash(filepath.Dir(file))+" "+strings.TrimPrefix(fields[1], "*")] = true
		}
	}
	for _, name := range named {
		if !passed[name] {
			t.Errorf("the walk names %s, which is no function that the job passes through", strings.Replace(name, " ", ".", 1))
		}
	}
}
