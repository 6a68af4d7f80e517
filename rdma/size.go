package rdma

import "math/bits"

// A QPSizer is a context that knows how much memory a queue pair takes. It is an optional
// ability of a Context.
type QPSizer interface {
	// QPBytes is what a queue pair takes from its creation on, of the process and of
	// the device, in bytes. The queues of init are not looked at, only whether they are there.
	QPBytes(init QPInitAttr) int
}

// QPBytes is how much memory a queue pair takes: what a [QPSizer] says, else an estimate
// after mlx5, which has work queue entries of 64 bytes (16 each for control, address and
// a scatter entry, inline data in place of the latter) as many as the next power of two, in
// whole pages, a doorbell record of 64 bytes and a context of 512 in the device.
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
