package soft_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// refusedVar asks a process of this test binary to be a node to whom the kernel
// refuses other processes' memory, if the value begins with "refused".
const refusedVar = "GORUN_SOFT_TEST_REFUSED"

// TestRefusedNode is the other half of TestConformanceRefused. Run as a test it
// is empty.
func TestRefusedNode(t *testing.T) {
	how, rank, asked := strings.Cut(os.Getenv(refusedVar), ",")
	if !asked {
		return
	}
	i, err := strconv.Atoi(rank)
	if err != nil {
		t.Fatal(err)
	}
	if how == "refused" {
		if err := refuseProcessVM(); err != nil {
			t.Fatal(err)
		}
	}
	segment, err := shm.Open(rdmatest.ConnFD + 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := soft.New(soft.Config{Segment: segment, Rank: i, Host: "here", Secret: jobSecret})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := p.Devices()
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := rdmatest.Serve(os.NewFile(rdmatest.ConnFD, "driver"), ctx); err != nil {
		t.Fatal(err)
	}
	os.Exit(0)
}

// Two processes of one segment that may not touch each other's ordinary memory
// go over TCP; so does one of them alone whose peer may touch his.
func TestConformanceRefused(t *testing.T) {
	groups := []string{"transfer", "status", "rnr", "atomic", "order", "flush", "dereg"}
	if arch.RaceEnabled {
		groups = []string{"dereg"} // no node is in this process: see afar
	}
	for _, c := range []struct {
		name  string
		nodes [3]string
	}{
		{"both", [3]string{"refused", "refused", "refused"}},
		{"one", [3]string{"allowed", "refused", "allowed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdmatest.Run(t, rdmatest.Fabric{Lacks: lacking, Brief: true, Memory: rdmatest.Ordinary, Groups: groups,
				Open: func(t testing.TB, n int) []rdmatest.Node {
					t.Helper()
					segment := createSegment(t, n)
					nodes := make([]rdmatest.Node, n)
					for i := range nodes {
						cmd := exec.Command(os.Args[0], "-test.run=^TestRefusedNode$")
						cmd.ExtraFiles = []*os.File{inherit(t, segment)}
						cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d", refusedVar, c.nodes[i%len(c.nodes)], i), "GORACE=report_bugs=0")
						nodes[i] = closing(t, rdmatest.Start(t, cmd))
					}
					return nodes
				}})
		})
	}
}

// The refusal is real, or the suite above would be one more of the kind that
// does not go over TCP: without a secret there is no way left.
func TestRefusedWithoutSecret(t *testing.T) {
	if os.Getenv(refusedVar) != "alone" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRefusedWithoutSecret$", "-test.v")
		cmd.Env = append(os.Environ(), refusedVar+"=alone")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := refuseProcessVM(); err != nil {
		testenv.Unsupported(t, "no seccomp filter: "+err.Error())
	}
	segment := createSegment(t, 2)
	peer := child(t, 1, segment)
	defer peer.Close()
	a := opened(t, soft.Config{Segment: segment, Host: "here"})
	pd, err := a.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	gid, err := peer.Context().QueryGID(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.(rdma.Endpointer).AddEndpoint(gid, peer.Context().(rdma.Endpointer).Endpoint()); err != nil {
		t.Fatal(err)
	}
	one := [1]byte{}
	_, err = unix.ProcessVMReadv(peer.PID(), []unix.Iovec{{Base: &one[0], Len: 1}}, []unix.RemoteIovec{{Base: 1 << 20, Len: 1}}, 0)
	if err != unix.EPERM {
		t.Errorf("process_vm_readv: %v, want %v", err, unix.EPERM)
	}
	runtime.KeepAlive(&one)
}
