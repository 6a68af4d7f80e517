package dpa_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/dpa"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// Two device threads add the numbers of half a slice each, while the program computes something else.
func Example() {
	provider := must(soft.New(soft.Config{}))
	defer provider.Close()
	opened := must(must(provider.Devices())[0].Open())
	defer opened.Close()
	pd := must(opened.AllocPD())
	defer pd.Close()

	device := must(dpa.New(pd, dpa.Config{Threads: 2}))
	defer device.Close()
	group := must(device.NewThreadGroup(2))
	sum := must(device.NewSyncEvent(dpa.Device, dpa.CPU))
	done := must(device.NewSyncEvent(dpa.Device, dpa.CPU))

	numbers := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	kernel := func(t *dpa.Thread) error {
		part := uint64(0)
		for i := t.Rank(); i < len(numbers); i += t.NumThreads() {
			part += numbers[i]
		}
		return t.Add(sum, part)
	}
	check(group.Launch(dpa.Launch{Kernel: kernel, Complete: done, Value: 1}))
	check(done.WaitGt(context.Background(), 0))
	fmt.Println("the sum is", must(sum.Get()))

	// A kernel that panics is an error on its completion event, and the program goes on.
	check(group.Launch(dpa.Launch{Name: "divide", Complete: done, Value: 2, Kernel: func(t *dpa.Thread) error {
		return t.Set(sum, numbers[0]/uint64(t.Rank())) // rank 0 divides by 0
	}}))
	fmt.Println("failed:", done.WaitGt(context.Background(), 1) != nil)

	// Output:
	// the sum is 36
	// failed: true
}

// An event that the remote network publishes is a word of registered memory, which a peer's device
// sets behind its data. Here the peer is a queue pair of the same program, connected to itself.
func ExampleThread_SignalSet() {
	provider := must(soft.New(soft.Config{}))
	defer provider.Close()
	opened := must(must(provider.Devices())[0].Open())
	defer opened.Close()
	pd := must(opened.AllocPD())
	defer pd.Close()
	memory := must(pd.AllocMR(64, rdma.AccessLocalWrite|rdma.AccessRemoteWrite))
	defer memory.Close()

	device := must(dpa.New(pd, dpa.Config{}))
	completions := must(device.NewCompletionContext(16))
	defer completions.Close()
	receives := must(opened.CreateCQ(1))
	defer receives.Close()
	qp := must(pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: completions.CQ(), RecvCQ: receives,
		Cap: rdma.QPCap{MaxSendWR: 16, MaxSendSGE: 1, MaxInlineData: 8}}))
	defer qp.Close()
	defer device.Close() // before the queue pair that it was given
	connect(qp)

	queue := must(device.NewRDMA(qp, completions))
	arrived := must(device.NewSyncEvent(dpa.RemoteNet, dpa.CPU))
	peers := must(arrived.Export()) // what the peer is told

	copy(memory.Bytes(), "block")
	group := must(device.NewThreadGroup(1))
	check(group.Launch(dpa.Launch{Kernel: func(t *dpa.Thread) error {
		from := rdma.SGE{Addr: memory.Addr(), Length: 5, LKey: memory.LKey()}
		if err := t.Write(queue, from, memory.Addr()+32, memory.RKey()); err != nil {
			return err
		}
		if err := t.SignalSet(queue, peers, 1); err != nil {
			return err
		}
		return t.Synchronize(queue)
	}}))
	check(arrived.WaitGt(context.Background(), 0))
	fmt.Printf("%s\n", memory.Bytes()[32:37])

	// Output:
	// block
}

// connect brings a queue pair to RTS, connected to itself.
func connect(qp rdma.QP) {
	gid := must(qp.PD().Context().QueryGID(1, 0))
	attr := rdma.QPAttr{PortNum: 1, AccessFlags: rdma.AccessRemoteWrite, AV: rdma.AV{DGID: gid, PortNum: 1, HopLimit: 1},
		PathMTU: rdma.MTU1024, DestQPNum: qp.Num(), MinRNRTimer: 12, Timeout: 14, RetryCnt: 6, RNRRetry: 6}
	for attr.State = rdma.StateInit; attr.State <= rdma.StateRTS; attr.State++ {
		check(qp.Modify(attr, rdma.Required(rdma.RC, attr.State-1, attr.State)))
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
