package testbed

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

//go:embed gridengine.sh
var gridFiles string

//go:embed gridqueue.sh
var gridQueue string

// gridSlots is how many ranks gridengine gives a host.
const gridSlots = 2

// Gridengine makes the bed a cluster of gridengine: a master on the first host, an execution daemon on each, and "mpi"
// for parallel jobs (qsub -pe mpi N), which fills one host after the other. Commands of hosts have its variables from now
// on. Where Debian's gridengine is not installed, the test is skipped with the reason.
func (b *Bed) Gridengine() {
	b.t.Helper()
	for _, tool := range []string{"qsub", "sge_qmaster", "sge_execd"} {
		testenv.Need(b.t, tool)
	}
	b.env = append(b.env, "SGE_ROOT="+filepath.Join(b.Dir, "sge"), "SGE_CELL=default", "SGE_QMASTER_PORT=6444", "SGE_EXECD_PORT=6445", "SGE_ND=1")
	first := b.Hosts[0]
	var names []string
	for _, h := range b.Hosts {
		names = append(names, h.Name)
	}
	script := func(text string, args ...string) {
		b.t.Helper()
		argv := append(append([]string{"sh", "-ec", text, "sh", b.Dir}, args...), names...)
		if out, err := first.Command(testenv.Deadline(b.t, startLimit), argv...).CombinedOutput(); err != nil {
			b.t.Fatalf("gridengine: %v\n%s\n%s", err, out, b.logs())
		}
	}
	script(gridFiles)
	first.daemon("sge_qmaster")
	b.await("gridengine's master", func() bool {
		return first.Command(b.t.Context(), "qconf", "-sconf").Run() == nil
	})
	script(gridQueue, fmt.Sprint(gridSlots))
	for _, h := range b.Hosts {
		if err := os.MkdirAll(filepath.Join(b.Dir, "sge.spool", "execd", h.Name), 0o755); err != nil {
			b.t.Fatal(err)
		}
		h.daemon("sge_execd")
	}
	b.await("gridengine's hosts to have a load", func() bool {
		// HOSTNAME ARCH NCPU ...; a host that has not answered has no load, and nothing is put there.
		out, _ := first.Command(b.t.Context(), "qstat", "-f").Output()
		return strings.Count(string(out), " lx-") == len(b.Hosts)
	})
}

// await waits for what daemons do, and tells what they have written if they do not.
func (b *Bed) await(what string, done func() bool) {
	b.t.Helper()
	defer func() {
		if b.t.Failed() {
			b.t.Log(b.logs())
		}
	}()
	testenv.Await(b.t, startLimit, what, done)
}
