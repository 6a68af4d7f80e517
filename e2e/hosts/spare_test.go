package hosts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A host that is cut off while ranks run there is set aside, and the job goes to its end on what is left: a spare
// host, or with --elastic fewer ranks. Nothing stays on any host, the one that is cut off included.
func TestAHostIsCutOff(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	for name, c := range map[string]struct {
		args []string
		want string // of the second start
	}{
		"spare":   {[]string{"-H", "h1,h2,h3", "-np", "2", "--max-restarts", "1"}, "rank 1 of 2 on h3"},
		"elastic": {[]string{"-H", "h1,h2", "--elastic", "1:2"}, "rank 0 of 1 on h1"},
	} {
		t.Run(name, func(t *testing.T) {
			up := filepath.Join(b.Dir, "up.1")
			_ = os.Remove(up)
			args := append([]string{filepath.Join(bin, "gorun"), "--restart-delay", "10ms"}, c.args...)
			cmd := b.Hosts[0].Command(testenv.Deadline(t, 90*time.Second), append(args, "sh", "-c",
				`[ $GORUN_RESTART_COUNT = 0 ] && exec "$0" idle; echo rank $PMI_RANK of $PMI_SIZE on $(hostname)`, filepath.Join(bin, "rank"))...)
			var out, complaints bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &complaints, time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, time.Minute, "ranks on both hosts", func() bool {
				_, err := os.Stat(up)
				return err == nil
			})
			b.Hosts[1].Link(false)
			defer b.Hosts[1].Link(true)
			if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), c.want) {
				t.Errorf("%v, want %q\n%s%s", err, c.want, &out, &complaints)
			}
			for _, want := range []string{"gorun: host h2: its agent ", "gorun: warning: host h2 is set aside; what is left: "} {
				if strings.Count(complaints.String(), want) != 1 {
					t.Errorf("not once %q:\n%s", want, &complaints)
				}
			}
			b.Idle(leftLimit)
		})
	}
}
