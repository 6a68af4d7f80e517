package rank

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rank/internal/rma"
	"github.com/gorun-mpi/gorun/rdma"
)

// defaultQPMemory is the budget of a host for queue pairs.
const defaultQPMemory = 256 << 20

// queueMemory is what the queue pairs of a host could come to take, where each of its ranks
// makes all that it may need:
//
//	ranks of the host x [(ranks of the job - 1) x (messages + collectives + windows)
//	                     + min(ranks of the job - 1, OwnMost) x receive queue]
//
// each as the device says (rdma.QPBytes). Receive buffers are not in it, which have
// a bound of their own, nor completion queues, of which a rank has three.
func queueMemory(ctx rdma.Context, host, size int) int64 {
	attr := ctx.QueryDevice()
	own := p2p.QueueAttr(attr, size)
	messages := own
	messages.Cap.MaxRecvWR, messages.Cap.MaxRecvSGE = 0, 0
	others := int64(size - 1)
	each := rdma.QPBytes(ctx, messages) + rdma.QPBytes(ctx, peers.CollectiveAttr(attr)) + rdma.QPBytes(ctx, rma.QueueAttr(attr, size))
	receive := rdma.QPBytes(ctx, own) - rdma.QPBytes(ctx, messages)
	return int64(host) * (others*int64(each) + min(others, p2p.OwnMost)*int64(receive))
}

// crowdMost is how many ranks a CPU may have whose queue pairs are reliable connections that letters bring
// about. That takes three turns on a CPU for each pair of ranks, while hundreds wait for theirs: an all-to-all
// of 64 ranks on 2 CPUs spent 12 of 16 s on it where a system call takes some microseconds.
const crowdMost = 8

// chooseTransport decides what goes over queue pairs, and says so: a reliable connection to each peer, made
// when it is needed, or dynamic connections, which take no turn of the peer: when the queue pairs of the
// largest host could come to take more than its budget, or its CPUs have many ranks each. Ranks with the same device and setting decide alike; between
// two that do not there are reliable connections.
//
// A device without dynamic connections keeps to reliable ones: as they are made on demand, what
// they take is what the program needs, and no limit of the device.
func (w *World) chooseTransport(cfg *Config) (transport string, err error) {
	budget := cmp.Or(cfg.QPMemory, cfg.Environment.QPMemory, defaultQPMemory)
	host := max(w.place.largest, 1)
	need := queueMemory(w.device.Context, host, w.size)
	facts := fmt.Sprintf("up to %s of queue pairs on a host of %d ranks, and the budget (GORUN_QP_MEMORY) is %s", inBytes(need), host, inBytes(max(budget, 0)))
	missing := errors.Join(w.device.Context.Supports(rdma.FeatureDC), w.device.Context.Supports(rdma.FeatureSRQ))
	crowd := cmp.Or(w.place.sharers, w.place.size)
	crowded := w.peers.HasMail() && missing == nil && crowd > crowdMost*w.place.cpus
	if crowded {
		facts = fmt.Sprintf("%d ranks share %d CPUs, more than %d each", crowd, w.place.cpus, crowdMost)
	}
	switch {
	case need <= budget && !crowded || w.size == 1:
		return "queue pairs are reliable connections, made when they are needed: " + facts, nil
	case !w.peers.OnDemand():
		return "queue pairs are reliable connections to all, though over the budget, as the device has no datagrams to make others with: " + facts, nil
	case missing != nil:
		return fmt.Sprintf("queue pairs are reliable connections, made when they are needed, though over the budget, as the device has no dynamic ones (%v): %s", missing, facts), nil
	}
	return fmt.Sprintf("queue pairs are dynamic connections, %d a rank at most: ", dc.Most) + facts, w.peers.UsePaths()
}

// inBytes is a size for people.
func inBytes(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
