package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/version"
)

// An agent whose program is on its way is waited for as long as that moves.
func TestEachPieceOfAStageIsProgress(t *testing.T) {
	testenv.NoLeaks(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	go1, go2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer go1.Close()
	defer go2.Close()
	const pieces = 3
	script := `printf '\0gorun-stage new\n'; while read word <&3; do head -c ` + strconv.Itoa(aheadPiece) + ` >/dev/null; done`
	fd := strconv.Itoa(int(go1.Fd()))
	l, err := Start([]string{"sh", "-c", "exec 3</proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + fd + "; " + script}, os.Environ(), "h", &Shell{Stage: &Stage{program: make([]byte, pieces*aheadPiece)}})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { _, err := l.Machine(time.Hour, time.Hour); failed <- err }()
	for i := range int64(pieces) {
		testenv.Await(t, time.Minute, "time to pass", func() bool { return l.Waits() > 0 })
		moved := l.moved.Load()
		if _, err := go2.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, time.Minute, "a piece to go", func() bool { return l.out.sent.Load() == (i+1)*aheadPiece })
		testenv.Await(t, time.Minute, "that to be progress", func() bool { return l.moved.Load() > moved })
	}
	l.within(10*time.Millisecond, 10*time.Millisecond) // nothing moves any more
	if err := <-failed; err == nil || !strings.Contains(err.Error(), ": its program is being sent, 786432 of 786432 bytes") {
		t.Errorf("got %v", err)
	}
	l.Kill()
	l.Close()
}

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
		l, err := Start(stage.Command(), append(os.Environ(), "XDG_CACHE_HOME="+dir), "h", &Shell{Stage: stage})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.out.put(order{Ping: true}); err != nil {
			t.Fatal(err)
		}
		if err := l.greet(); err != nil {
			t.Error(err)
		}
		_, _ = pipes{l}.Read(make([]byte, 1)) // its end
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
