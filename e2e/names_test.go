package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestAsThePeers gives the same command line to a launcher and to gorun called by
// its name: the ranks must see the same.
func TestAsThePeers(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	show := func(script string) []string { return []string{"sh", "-c", script} }
	for _, peer := range []struct {
		command, name string
		before        []string
		lines         [][]string
	}{
		{"mpirun.openmpi", "mpirun", []string{"--allow-run-as-root"}, [][]string{
			append([]string{"--oversubscribe", "-np", "2", "-x", "A=1"}, show("echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $A")...),
			{"--oversubscribe", "-np", "1", "--wdir", "sub", "pwd", ":", "-np", "1", "pwd"},
			append([]string{"-np", "1", "-x", "PEER*"}, show("echo $PEER_ONE $PEER_TWO")...),
			append([]string{"--hostfile", "slots"}, show("echo $OMPI_COMM_WORLD_SIZE $OMPI_UNIVERSE_SIZE")...),
			append([]string{"--hostfile", "slots", "-np", "1"}, show("echo $OMPI_NUM_APP_CTX $OMPI_COMM_WORLD_LOCAL_SIZE")...),
			append([]string{"--mca", "btl", "self", "-np", "1"}, show("echo $OMPI_MCA_btl")...),
			append([]string{"--oversubscribe", "-np", "1", "--mca", "btl", "self", "true", ":", "-np", "1"}, show("echo $OMPI_MCA_btl")...),
			{"--bind-to", "none", "-np", "1", "grep", "Cpus_allowed_list", "/proc/self/status"},
			{"--oversubscribe", "-np", "9", "grep", "Cpus_allowed_list", "/proc/self/status"},
			{"-np", "1", "--path", "/nowhere:/bin", "echo", "an argument", ""},
			{"--oversubscribe", "--app", "programs"},
		}},
		{"mpiexec.mpich", "mpiexec", nil, [][]string{
			append([]string{"-n", "2", "-env", "A", "1"}, show("echo $PMI_RANK $PMI_SIZE $A")...),
			append(append([]string{"-n", "1", "-genv", "A=2"}, show("echo $A")...), append([]string{":", "-n", "1", "-env", "A", "3"}, show("echo $A")...)...),
			append([]string{"-f", "counts"}, show("echo $PMI_SIZE $MPI_LOCALNRANKS")...),
			append([]string{"-hosts", "localhost", "-n", "3"}, show("echo $PMI_RANK $MPI_LOCALNRANKS")...),
			append([]string{}, show("echo $PMI_SIZE")...),
			{"-n", "2", "-wdir", "/", "pwd"},
			{"-n", "1", "grep", "Cpus_allowed_list", "/proc/self/status"},
			{"-configfile", "programs"},
		}},
	} {
		theirs := testenv.Need(t, peer.command)
		gorun, err := exec.LookPath("gorun")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		ours := filepath.Join(dir, peer.name)
		if err := os.Symlink(gorun, ours); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"slots":    "# here\nlocalhost slots=2 max_slots=4\n",
			"counts":   "localhost:3\n",
			"programs": "-n 1 -wdir /tmp pwd\n# a comment\n-n 1 echo b c\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range peer.lines {
			t.Run(peer.name+" "+strings.Join(line, " "), func(t *testing.T) {
				skipPeerFault(t, peer.command, line)
				want := sortedOutput(t, dir, theirs, slices.Concat(peer.before, line), 3)
				got := sortedOutput(t, dir, ours, slices.Concat(peer.before, line), 1)
				if got != want {
					t.Errorf("gorun as %s:\n%s\n%s itself:\n%s", peer.name, got, peer.command, want)
				}
			})
		}
	}
}

// sortedOutput is what the ranks print, in order of the lines. Several tries are for Hydra of MPICH 4.0.2, which is rarely
// ended by SIGPIPE when its program ends before it was given its input.
func sortedOutput(t *testing.T, dir, command string, args []string, tries int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(30*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PEER_ONE=1", "PEER_TWO=2", "PWD="+dir)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && tries > 1 && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGPIPE {
		return sortedOutput(t, dir, command, args, tries-1)
	}
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", command, args, err, errOut.String())
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
