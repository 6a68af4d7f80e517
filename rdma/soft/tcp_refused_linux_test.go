package soft_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// refusedVar asks a process of this test binary to be a node to whom the kernel
// refuses other processes' memory, if the value begins with "refused".
const refusedVar = "GORUN_SOFT_TEST_REFUSED"

// TestRefusedNode is the other half of TestConformanceRefused. Run as a test it
// is empty.
func TestRefusedNode(t *testing.T) {
	how, rest, asked := strings.Cut(os.Getenv(refusedVar), ",")
	if !asked {
		return
	}
	rank, knows, _ := strings.Cut(rest, ",")
	i, err := strconv.Atoi(rank)
	if err != nil {
		t.Fatal(err)
	}
	var secret []byte
	if knows == "secret" {
		secret = jobSecret
	}
	if how == "refused" {
		if err := testenv.RefuseProcessVM(); err != nil {
			t.Fatal(err)
		}
	}
	segment, err := shm.Open(rdmatest.ConnFD + 1)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, soft.Config{Segment: segment, Rank: i, Host: "here", Secret: secret})
}

// Two processes of one segment that may not touch each other's ordinary memory
// go over TCP; so does one of them alone whose peer may touch its memory. They need no
// secret for that.
func TestConformanceRefused(t *testing.T) {
	groups := []string{"transfer", "status", "rnr", "atomic", "order", "flush", "dereg"}
	if arch.RaceEnabled {
		groups = []string{"dereg"} // no node is in this process: see afar
	}
	for _, c := range []struct {
		name  string
		nodes [3]string
		knows string
	}{
		{"both", [3]string{"refused", "refused", "refused"}, "secret"},
		{"one", [3]string{"allowed", "refused", "allowed"}, "secret"},
		{"both without a secret", [3]string{"refused", "refused", "refused"}, "none"},
		{"one without a secret", [3]string{"allowed", "refused", "allowed"}, "none"},
	} {
		if testing.Short() && !arch.RaceEnabled && (c.knows == "secret") != (c.nodes[0] == "allowed") {
			continue // both with a secret have links as between hosts; one without needs what both need
		}
		t.Run(c.name, func(t *testing.T) {
			groups := groups
			if testing.Short() && !arch.RaceEnabled && c.nodes[0] == "allowed" {
				groups = []string{"transfer", "dereg"}
			}
			rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Brief: true, Memory: rdmatest.Ordinary, Groups: groups,
				Open: func(t testing.TB, n int) []rdmatest.Node {
					t.Helper()
					segment := createSegment(t, n)
					nodes := make([]rdmatest.Node, n)
					for i := range nodes {
						cmd := exec.Command(os.Args[0], "-test.run=^TestRefusedNode$")
						cmd.ExtraFiles = []*os.File{inherit(t, segment)}
						cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d,%s", refusedVar, c.nodes[i%len(c.nodes)], i, c.knows), "GORACE=report_bugs=0")
						nodes[i] = closing(t, rdmatest.Start(t, cmd))
					}
					return nodes
				}})
		})
	}
}
