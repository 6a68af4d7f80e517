//go:build cgo

package coll

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// verbsVariable names devices of libibverbs to be tested, separated by commas:
// the virtual machine of make test-rxe has rxe0 and rxe1, which reach each other.
const verbsVariable = "GORUN_TEST_VERBS"

// Random calls on real verbs, in registered memory and in memory that is
// registered for the call: on one device, and on two whose members alternate.
func TestCollectivesOnVerbs(t *testing.T) {
	asked := os.Getenv(verbsVariable)
	if asked == "" {
		return // no skip: only the machine made for it has devices
	}
	have, err := verbs.New(verbs.Config{}).Devices()
	if err != nil {
		t.Fatal(err)
	}
	var devices []rdma.Device
	for name := range strings.SplitSeq(asked, ",") {
		at := slices.IndexFunc(have, func(d rdma.Device) bool { return d.Name() == name })
		if at < 0 {
			t.Fatalf("%s names %s, which is not among %d devices", verbsVariable, name, len(have))
		}
		devices = append(devices, have[at])
	}
	for use := range devices {
		for _, n := range []int{2, 3, 4} {
			t.Run(fmt.Sprintf("%d devices/ranks=%d", use+1, n), func(t *testing.T) {
				testenv.NoLeaks(t)
				list := jobs(uint64(n), n, 20, defaultEager, 200<<10)
				nw := network{n: n, devices: devices[:use+1], ordinary: true, verbs: true,
					cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 512}}
				nw.run(t, func(ctx context.Context, m *member) error {
					for i, j := range list {
						if err := m.check(ctx, j, i%2 == 0); err != nil {
							return fmt.Errorf("call %d: %w", i, err)
						}
					}
					return nil
				})
			})
		}
	}
}
