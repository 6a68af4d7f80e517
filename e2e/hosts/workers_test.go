package hosts

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Kubernetes' mpi-operator starts the launcher with a hostfile and options for ssh, by variables of
// each MPI. A worker gets its name, and its sshd, some seconds later than the launcher starts.
func TestWorkersThatComeLater(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3) // the launcher, and two workers
	hostfile := filepath.Join(b.Dir, "hostfile")
	if err := os.WriteFile(hostfile, []byte("worker-0 slots=2\nworker-1 slots=2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Name("worker-0", b.Hosts[1])
	b.Hosts[1].SSHD(2222)
	const options = "-o ConnectionAttempts=1 -p 2222"
	sshd := false
	for _, c := range []struct{ name, file, args string }{
		{"Open MPI's variables", "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_args"},
		{"Hydra's", "HYDRA_HOST_FILE", "HYDRA_LAUNCH_EXTRA_ARGS"},
		{"Intel's", "I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"},
	} {
		if sshd && !*all {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cmd := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), "env", c.file+"="+hostfile, c.args+"="+options, filepath.Join(bin, "gorun"), "-v", "hostname")
			var out bytes.Buffer
			cmd.Stdout, cmd.WaitDelay = &out, time.Second
			complaints, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			named, refused := false, false
			for lines := bufio.NewScanner(complaints); lines.Scan(); {
				line := lines.Text()
				said.WriteString(line + "\n")
				if !strings.Contains(line, "host not reached yet") {
					continue
				}
				switch {
				case strings.Contains(line, "Could not resolve hostname") && !named:
					named = true
					b.Name("worker-1", b.Hosts[2])
				case strings.Contains(line, "Connection refused") && !refused:
					refused = true
					b.Hosts[2].SSHD(2222)
				}
			}
			err = cmd.Wait()
			got := strings.Fields(out.String())
			if slices.Sort(got); err != nil || !slices.Equal(got, []string{"h2", "h2", "h3", "h3"}) {
				t.Errorf("%v, got %q, want each worker twice\n%s", err, got, said.String())
			}
			if late := !sshd; named != late || refused != late {
				t.Errorf("heard of a name that is missing: %v, of no sshd: %v; want %v\n%s", named, refused, late, said.String())
			}
			sshd = true
			b.Idle(leftLimit)
		})
	}
}
