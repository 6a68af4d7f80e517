package rank

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rdma"
)

// Comm is the communicator of all ranks (MPI_COMM_WORLD).
func (w *World) Comm() *Comm { return w.comm }

// Host is the name of the rank's host.
func (w *World) Host() string { return w.place.host }

// HostOf is the name of a rank's host.
func (w *World) HostOf(rank int) string { return w.peers.Card(rank).Host }

// LocalRank is the rank's number among those that share its host's memory.
func (w *World) LocalRank() int { return w.place.local }

// LocalSize is how many ranks share the host's memory.
func (w *World) LocalSize() int { return w.place.size }

// DeviceInfo names a device.
type DeviceInfo struct {
	Name     string // "soft0"
	Provider string // "soft"
	// OneSided: a peer's memory is reached without the peer's help.
	OneSided bool
	// Mapped is how many other ranks' memory is reached by loads and stores,
	// without posting work: ranks of the same host, unless the device was
	// asked for by name.
	Mapped int
}

// Device is the device that the rank uses.
func (w *World) Device() DeviceInfo {
	return DeviceInfo{Name: w.device, Provider: w.fabric.provider, OneSided: w.fabric.port.Attr.OneSided, Mapped: w.mapped()}
}

// mapped counts the ranks whose memory this one maps, or will when it needs them.
func (w *World) mapped() (n int) {
	for peer := range w.size {
		if peer != w.rank && w.peers.Maps(peer) {
			n++
		}
	}
	return n
}

// way says how bytes go to other ranks, and why.
func (w *World) way() string {
	if w.named {
		return fmt.Sprintf("all through work requests: device %s was asked for by name", w.device)
	}
	return fmt.Sprintf("%d of %d other ranks through mapped memory, the rest through work requests on %s", w.mapped(), w.size-1, w.device)
}

// Counters count what a rank did since Init.
type Counters struct {
	Device     rdma.Counters // all work requests, messages and collectives alike
	Collective coll.Counters // of all communicators, freed ones too
	// Peers is how many other ranks this one has reached for, or has been reached by,
	// and QueuePairs how many queue pairs it has for messages, collectives and windows. Both
	// grow as they are needed; on a device that has no datagrams Init makes all.
	Peers, QueuePairs int
	// QueueBytes is the memory that these queue pairs take, by what the device says
	// ([rdma.QPBytes]).
	QueueBytes int
	// Sleeps is how often the rank has slept while it waited. Overslept is how many of
	// these sleeps ended by a time-out although what the rank waited for had come; it
	// is 0 unless a wake-up was missed.
	Sleeps, Overslept uint64
	// Datagrams is how many datagrams the rank has sent to make connections on demand,
	// and Late how many letters it took in only when their sender repeated them.
	Datagrams, Late uint64
}

// Counters reads the counters. After Finalize they are zero.
func (w *World) Counters() Counters {
	if w.final {
		return Counters{}
	}
	n := Counters{Device: w.fabric.context.Counters(), Collective: w.past, Peers: w.size - 1}
	for _, qp := range w.queuePairs() {
		_, init := qp.Query()
		n.QueuePairs++
		n.QueueBytes += rdma.QPBytes(w.fabric.context, init)
	}
	if w.peers.OnDemand() {
		n.Peers = 0
		for peer := range w.size {
			if w.peers.Met(peer) {
				n.Peers++
			}
		}
	}
	for _, c := range w.comms {
		add(&n.Collective, c.team.Counters())
	}
	waits := w.waiter.Counts()
	n.Sleeps, n.Overslept = waits.Sleeps, waits.Overslept
	letters := w.peers.MailCounts()
	n.Datagrams, n.Late = letters.Datagrams, letters.Late
	return n
}

// queuePairs are all queue pairs for messages, collectives and windows.
func (w *World) queuePairs() []rdma.QP {
	list := append(w.messages.Queues(), w.fabric.queues...)
	if w.rma != nil {
		list = append(list, w.rma.Queues()...)
	}
	list = slices.DeleteFunc(list, func(qp rdma.QP) bool {
		_, path := qp.(*dc.Path)
		return qp == nil || path
	})
	return append(list, w.peers.Initiators()...)
}

func add(sum *coll.Counters, n coll.Counters) {
	sum.Calls += n.Calls
	sum.Puts += n.Puts
	sum.PutBytes += n.PutBytes
	sum.Signals += n.Signals
	sum.Descriptors += n.Descriptors
	sum.Credits += n.Credits
	sum.Copies += n.Copies
	sum.CopyBytes += n.CopyBytes
	sum.Unpacks += n.Unpacks
	sum.UnpackBytes += n.UnpackBytes
	sum.Reductions += n.Reductions
	sum.ReduceBytes += n.ReduceBytes
}
