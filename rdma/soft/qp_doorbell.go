package soft

import "github.com/gorun-mpi/gorun/rdma"

// The doorbell record of a send queue is sendQueue.posted, its producer index. A post writes the record and then rings.
// A ring says no more than that the record has moved: the device reads it, and takes the requests up to there.
// So the latest index wins, whichever ring brings the device to it, and a ring that is lost is made good by the next.
//
//	post 1: record 1, ring ------> the device has 1
//	post 2: record 2, ring --x     it knows nothing of request 2
//	post 3: record 3, ring ------> it reads 3, and takes 2 and 3
//
// Without an Adversary every ring comes at once, within its post, so the device has what the record says and keeps no index
// of its own. An Adversary loses rings: chaos.ring is the bus, sendQueue.rung the index that the device has, and
// nothing behind that is executed. Behind a lost ring with no other the device looks at the record by itself in the end
// (chaos.unseen), as devices do that know that they have dropped one. A queue pair that goes to ERR has its record read.

// What a device would do on its bus for the requests of a post is counted by
// this rule, which follows mlx5. It is applied to what was posted: a request that
// is sent again counts once.
//
//   - Each PostSend or BindMW that takes a request writes the producer index:
//     one doorbell.
//   - A request is a work queue entry of segments: control 16 bytes, the address
//     vector of UD and DC 48, the SRQ of XRC 16, a remote address 16 (write,
//     read, atomic), the operands of an atomic 16, and 16 for every entry of the
//     SGL that is not empty. Inline data take 4 bytes and their own length,
//     rounded up to 16. An operation on a key of the own side takes 128 bytes,
//     and behind them, in whole blocks, its list: 16 bytes for a window, 16 for
//     every piece of an Mkey's list, 16 for interleaving and every piece of it.
//     An entry fills whole blocks of 64 bytes. What does not depend on what a request
//     carries is the column Entry of rdma's table of operations.
//   - A post of exactly one request, inline and of at most 256 bytes, is a direct
//     entry: it comes with the doorbell.
//   - The blocks of any other post are fetched by reads of up to 4 blocks:
//     blocks / 4, rounded up. The queue is taken for endless.
//   - A payload that is not inline is read once for every entry of its SGL that
//     is not empty. Reads and atomics bring no payload.
const (
	wqeSegment = 16
	wqeBlock   = 64
	wqeFetch   = 4   // blocks in one read
	wqeDirect  = 256 // bytes of the register that takes a direct entry
)

// ring accounts for one post. Called with mu held.
func (q *queuePair) ring(wrs []rdma.SendWR) {
	c := &q.sq.counters
	c.Doorbells++
	blocks := uint64(0)
	for i := range wrs {
		wr := &wrs[i]
		o := wr.Opcode.Operation()
		n := uint64(o.Entry) + uint64(q.addressing)
		switch {
		case wr.Flags&rdma.SendInline != 0:
			n += (4 + inlineLength(wr) + wqeSegment - 1) &^ (wqeSegment - 1)
			if len(wrs) == 1 && n <= wqeDirect {
				c.DirectWQEs++
				return
			}
		case o.Needs&rdma.NeedsLayout != 0:
			n += mkeyList(wr.Layout)
		default:
			pieces := uint64(0)
			for k := range wr.SGL {
				if wr.SGL[k].Length > 0 {
					pieces++
				}
			}
			n += pieces * wqeSegment
			if !o.Fetches() {
				c.DMAReads += pieces
			}
		}
		blocks += (n + wqeBlock - 1) / wqeBlock
	}
	c.WQEFetches += (blocks + wqeFetch - 1) / wqeFetch
}

// mkeyList is the size of the list behind the entry that sets a key's layout.
func mkeyList(l *rdma.MkeyLayout) uint64 {
	n := len(l.List)
	if len(l.Interleaved) > 0 {
		n = 1 + len(l.Interleaved)
	}
	return uint64(n*wqeSegment+wqeBlock-1) &^ (wqeBlock - 1)
}

// addressing is the size of the segments that say where a request of a transport
// goes.
func addressing(typ rdma.QPType) uint32 {
	switch typ {
	case rdma.UD, rdma.DCI:
		return 48
	case rdma.XRCSend:
		return 16
	}
	return 0
}
