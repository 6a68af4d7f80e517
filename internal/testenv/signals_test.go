package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestIgnoredSignals has the tests run as under nohup and in a script's background: what
// they start ends by these signals all the same.
func TestIgnoredSignals(t *testing.T) {
	if os.Getenv("TESTENV_IGNORED") != "" {
		for _, s := range []string{"HUP", "INT", "QUIT", "TERM"} {
			if err := exec.Command("/bin/sh", "-c", "kill -"+s+" $$; exit 0").Run(); err == nil {
				t.Errorf("a child goes on after %s", s)
			}
		}
		return
	}
	cmd := exec.Command("/bin/sh", "-c", `trap "" HUP INT QUIT TERM; exec "$0" "$@"`, os.Args[0], "-test.run=^TestIgnoredSignals$", "-test.v")
	cmd.Env = append(os.Environ(), "TESTENV_IGNORED=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
