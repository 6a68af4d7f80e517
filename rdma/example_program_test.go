package rdma_test

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// docs/rdma.md shows this one.
func Example() {
	provider, _ := soft.New(soft.Config{}) // verbs.New(verbs.Config{}) for the devices of libibverbs
	devices, _ := provider.Devices()
	ctx, _ := devices[0].Open()
	gid, _ := ctx.QueryGID(1, 0)
	pd, _ := ctx.AllocPD()
	cq, _ := ctx.CreateCQ(16)
	mr, _ := pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	var qps [2]rdma.QP
	for i := range qps {
		qps[i], _ = pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: cq, RecvCQ: cq, Cap: rdma.QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
	}
	for i, qp := range qps { // each to the other; between processes number, GID, address and key travel first
		attr := rdma.QPAttr{State: rdma.StateInit, PortNum: 1, AccessFlags: rdma.AccessRemoteWrite, DestQPNum: qps[1-i].Num(),
			AV: rdma.AV{DGID: gid, PortNum: 1, HopLimit: 1}, PathMTU: rdma.MTU1024, MinRNRTimer: 12, Timeout: 14, RetryCnt: 6, RNRRetry: 6}
		for ; attr.State <= rdma.StateRTS; attr.State++ { // INIT, RTR, RTS
			if err := qp.Modify(attr, rdma.Required(rdma.RC, attr.State-1, attr.State)); err != nil {
				fmt.Println(err)
			}
		}
	}
	copy(mr.Bytes(), "written by RDMA")
	qps[0].PostSend([]rdma.SendWR{{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, RemoteAddr: mr.Addr() + 100, RKey: mr.RKey(),
		SGL: []rdma.SGE{{Addr: mr.Addr(), Length: 15, LKey: mr.LKey()}}}})
	wc := make([]rdma.WC, 1)
	for n := 0; n == 0; n, _ = cq.Poll(wc) {
	}
	fmt.Printf("%v: %s\n", wc[0].Status, mr.Bytes()[100:115])
	// Output: success: written by RDMA
}
