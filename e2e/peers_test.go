package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// launchers are the peers' own, by what scripts and tests call the peers.
var launchers = map[string]string{"mpich": "mpiexec.mpich", "openmpi": "mpirun.openmpi"}

// isPeer is a script's condition [openmpi:5]: the peer has that version, or one that
// begins so. [root] is another one: root runs the script.
func isPeer(t *testing.T, condition string) (bool, error) {
	if condition == "root" {
		return os.Geteuid() == 0, nil
	}
	peer, version, ok := strings.Cut(condition, ":")
	if launchers[peer] == "" || !ok {
		return false, fmt.Errorf("condition %q, expected mpich:VERSION or openmpi:VERSION", condition)
	}
	return strings.HasPrefix(testenv.Version(t, launchers[peer])+".", version+"."), nil
}

// Faults of the peers' own launchers, each seen with exactly this version: their lines
// cannot be compared with gorun's.
var peerFaults = []struct{ peer, version, word, fault string }{
	{"openmpi", "5.0.7", ":", "it ends with a segmentation fault at a second program"},
	{"openmpi", "5.0.7", "--app", "it ends with a segmentation fault at --app"},
	{"openmpi", "5.0.7", "--path", "it takes the list of --path as one directory"},
	{"openmpi", "6.0.0", "--path", "it takes the list of --path as one directory"},
	{"mpich", "4.2.1", "-configfile", "it takes all lines of the file as one program"},
}

// skipPeerFault skips a comparison that a fault of the peer's makes impossible.
func skipPeerFault(t *testing.T, command string, args []string) {
	for _, f := range peerFaults {
		if launchers[f.peer] == command && slices.Contains(args, f.word) && testenv.Version(t, command) == f.version {
			testenv.Foreign(t, fmt.Sprintf("%s %s: %s", command, f.version, f.fault))
		}
	}
}

func TestPeerConditions(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	version := testenv.Version(t, launchers["mpich"])
	major, _, _ := strings.Cut(version, ".")
	for condition, want := range map[string]bool{"mpich:" + version: true, "mpich:" + major: true, "mpich:" + major + "0": false, "mpich:0.1": false} {
		if got, err := isPeer(t, condition); err != nil || got != want {
			t.Errorf("[%s] is %v, %v with version %s", condition, got, err, version)
		}
	}
	for _, condition := range []string{"lam:7", "mpich"} {
		if _, err := isPeer(t, condition); err == nil {
			t.Errorf("[%s] is no error", condition)
		}
	}
}
