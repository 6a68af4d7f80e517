//go:build cgo

package rank_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// verbsVariable names devices of libibverbs to be tested, separated by commas:
// the virtual machine of make test-rxe has rxe0 and rxe1, which reach each other.
const verbsVariable = "GORUN_TEST_VERBS"

// onVerbs is a program of the job: f on the devices named by verbsVariable.
func onVerbs(f func(ctx context.Context, c *rank.Comm) error) func() {
	return func() {
		ctx := context.Background()
		w, err := rank.Init(ctx, rank.Config{Providers: []rdma.Provider{verbs.New(verbs.Config{})}, Devices: strings.Split(os.Getenv(verbsVariable), ",")})
		if err == nil {
			err = f(ctx, w.Comm())
		}
		if err == nil {
			err = w.Finalize(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func init() {
	programs["verbs suite"] = onVerbs(suite(dose{[]layout{word}, []numeric{numerics[5]}, []int{2}, false}, 4))
	programs["verbs world"] = onVerbs(func(ctx context.Context, c *rank.Comm) error {
		k := newKit(intra("world", c), word, large, 5)
		k.movements()
		return k.try(ctx)
	})
}

// Jobs on real verbs. A machine that is emulated takes its time for them: the
// whole suite is for two ranks, one communicator for more, and for two devices, of
// which each half of the ranks uses one.
func TestProcessesOnVerbs(t *testing.T) {
	asked := os.Getenv(verbsVariable)
	if asked == "" {
		return // no skip: only the machine made for it has devices
	}
	testenv.NoLeaks(t)
	one, _, _ := strings.Cut(asked, ",")
	for _, c := range []struct {
		program, devices string
		ranks            int
	}{{"verbs suite", one, 2}, {"verbs world", one, 3}, {"verbs world", asked, 3}} {
		t.Run(fmt.Sprintf("%s/%s/ranks=%d", c.program, c.devices, c.ranks), func(t *testing.T) {
			j := &job{program: c.program, hosts: []int{c.ranks}, env: []string{verbsVariable + "=" + c.devices}}
			j.start(t)
			j.done(t)
		})
	}
}
