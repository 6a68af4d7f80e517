package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/version"
)

// The script travels between single quotes through login shells of other languages.
func TestStageScriptPassesAnyShell(t *testing.T) {
	for _, c := range []string{"'", "!", "\n", "\t"} {
		if script := (&Stage{}).Command()[2]; strings.Contains(script, c) {
			t.Errorf("the script has %q in %q", c, script)
		}
	}
	for _, shell := range []string{"dash", "bash", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		argv := []string{path, "-n", "-c", (&Stage{}).Command()[2]}
		if shell == "busybox" {
			argv = []string{path, "sh", "-n", "-c", (&Stage{}).Command()[2]}
		}
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

// A staged program is sent to a host once, and before the frames that were put earlier.
func TestStageSendsOnce(t *testing.T) {
	testenv.NoLeaks(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	text := "#!/bin/sh\n" + `printf '\000gorun-agent ` + version.Number + " " + streamVersion + ` %d\n' $$; head -c 5 | wc -c >&2; exit 7` + strings.Repeat("\n#", 1<<20)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	stage, err := ReadStage(program)
	if err != nil {
		t.Fatal(err)
	}
	stage.path = "" // where the host has it
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cache := filepath.Join(dir, "gorun")
	for i, c := range []struct {
		name, why string
		before    func()
	}{
		{"first", "new", func() {}},
		{"again", "", func() {}},
		{"changed", "changed", func() {
			_ = os.WriteFile(filepath.Join(cache, "agent-"+stage.hash), []byte("#!/bin/sh\n"), 0o700)
		}},
		{"a link", "changed", func() {
			name := filepath.Join(cache, "agent-"+stage.hash)
			_ = os.Remove(name)
			_ = os.Symlink(program, name)
		}},
		{"a directory", "changed", func() {
			name := filepath.Join(cache, "agent-"+stage.hash)
			_ = os.Remove(name)
			_ = os.MkdirAll(filepath.Join(name, "sub"), 0o700)
		}},
		{"open for all", "", func() { _ = os.Chmod(cache, 0o777) }},
		{"where it is here", "", func() {
			_ = os.Remove(filepath.Join(cache, "agent-"+stage.hash))
			stage.path = program
		}},
	} {
		c.before()
		l, err := Start(stage.Command(), append(os.Environ(), "XDG_CACHE_HOME="+dir), "h", true, nil, stage)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.out.put(order{Ping: true}); err != nil {
			t.Fatal(err)
		}
		if err := l.greet(); err != nil {
			t.Error(err)
		}
		_, _ = l.from.Read(make([]byte, 1)) // its end
		how, said := l.Close()
		why, n := l.Staged()
		if how != "exited with status 7" || len(said) != 1 || said[0] != "5" || why != c.why || n != int64(len(text)) && why != "" {
			t.Errorf("%d %s: %s, said %q, staged %q, %d bytes; want status 7, 5 and %q, %d bytes", i, c.name, how, said, why, n, c.why, len(text))
		}
	}
	if st, err := os.Stat(cache); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the cache has mode %v, %v", st.Mode(), err)
	}
}
