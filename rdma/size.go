package rdma

import "math/bits"

// A QPSizer is a Context that knows how much memory its queue pairs
// take. It is an optional interface of a [Context].
type QPSizer interface {
	// QPBytes is the memory in bytes that a queue pair takes when it is created, in the
	// process and in the device. It depends on which queues init has, not on their contents.
	QPBytes(init QPInitAttr) int
}

// QPBytes is the memory in bytes that a queue pair takes: the result of [QPSizer], else an estimate
// for mlx5. There a queue has a power of two of work queue entries of 64 bytes (segments of 16 bytes
// for control, address and each scatter entry; inline data replaces the latter), in whole pages, and
// the queue pair has a doorbell record of 64 bytes and a context of 512 bytes in the device.
func QPBytes(ctx Context, init QPInitAttr) int {
	if s, ok := ctx.(QPSizer); ok {
		return s.QPBytes(init)
	}
	const unit, segment, page, fixed = 64, 16, 4096, 64 + 512
	entries := func(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }
	send, receive := 0, 0
	if init.Type != DCT && init.Type != XRCRecv {
		entry := segment + 2*segment + max(segment*init.Cap.MaxSendSGE, init.Cap.MaxInlineData+4)
		send = entries(init.Cap.MaxSendWR) * ((entry + unit - 1) / unit * unit)
	}
	if init.SRQ == nil && init.Cap.MaxRecvWR > 0 {
		receive = entries(init.Cap.MaxRecvWR) * segment * entries(init.Cap.MaxRecvSGE)
	}
	return (send+receive+page-1)/page*page + fixed
}
