package rxe

import (
	"strings"
	"testing"
)

// gorun and its ranks under another kernel, and one without its own launcher's
// software device being asked for.
func TestMainJob(t *testing.T) {
	out := inGuest(t, "gorun", "-np", "4", "a2a", "-m", "32")
	if !strings.Contains(out, "on every rank") {
		t.Error(out)
	}
}
