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

// LocalRank is this rank's number among the ranks that share the host's memory.
func (w *World) LocalRank() int { return w.place.local }

// LocalSize is the number of ranks that share the host's memory.
func (w *World) LocalSize() int { return w.place.size }

// DeviceInfo describes a device.
type DeviceInfo struct {
	Name     string // "soft0"
	Provider string // "soft"
	// OneSided: a peer's memory is accessed without the help of the peer's process.
	OneSided bool
	// Mapped is the number of other ranks whose memory is accessed by loads
	// and stores instead of work requests: the ranks of the same host,
	// unless the device was named in Config.Devices or Config.Verbs is set.
	Mapped int
}

// Device is the device that the rank uses.
func (w *World) Device() DeviceInfo {
	if w.enter() == nil {
		defer w.leave()
	}
	return DeviceInfo{Name: w.device.Name, Provider: w.device.Provider, OneSided: w.device.Port.Attr.OneSided, Mapped: w.mapped()}
}

// DeviceContext is the rank's open device, for a program that uses verbs itself beside the rank's calls. The program
// owns the objects that it creates of it, and closes them before [World.Finalize], which closes the device.
// The rank tells the device the addresses of those peers only that it has met: the program exchanges
// GIDs and endpoints itself ([rdma.Endpointer]).
func (w *World) DeviceContext() rdma.Context { return w.device.Context }

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
	return fmt.Sprintf("%d of %d other ranks through mapped memory, the rest through work requests on %s", w.mapped(), w.size-1, w.device.Name)
}

// Counters count what a rank did since Init.
type Counters struct {
	Device     rdma.Counters // all work requests, of messages, collectives and windows
	Collective coll.Counters // of all communicators, including freed ones
	// Peers is the number of other ranks that this rank has connected to or mapped, from
	// either side. QueuePairs is the number of its queue pairs for messages, collectives and
	// windows. Both grow on demand; on a device without datagrams Init connects all peers.
	Peers, QueuePairs int
	// QueueBytes is the memory of these queue pairs in bytes, as the device reports it ([rdma.QPBytes]).
	QueueBytes int
	// Sleeps is how often the rank has slept while it waited. Overslept is how many of these
	// sleeps ended by a time-out although the event had come; it is 0 unless a wake-up was missed.
	Sleeps, Overslept uint64
	// Datagrams is the number of datagrams that the rank has sent to connect on demand. Late is
	// the number of connection messages that it received only when the sender repeated them.
	Datagrams, Late uint64
}

// Counters returns the counters. After Finalize, and while another goroutine is in a call, they are zero.
func (w *World) Counters() Counters {
	if w.enter() != nil {
		return Counters{}
	}
	defer w.leave()
	n := Counters{Device: w.device.Context.Counters(), Collective: w.past, Peers: w.size - 1}
	for _, qp := range w.queuePairs() {
		_, init := qp.Query()
		n.QueuePairs++
		n.QueueBytes += rdma.QPBytes(w.device.Context, init)
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
		n.Collective.Add(c.team.Counters())
	}
	waits := w.waiter.Counts()
	n.Sleeps, n.Overslept = waits.Sleeps, waits.Overslept
	letters := w.peers.MailCounts()
	n.Datagrams, n.Late = letters.Datagrams, letters.Late
	return n
}

// queuePairs are all queue pairs for messages, collectives and windows.
func (w *World) queuePairs() []rdma.QP {
	list := append(w.messages.Queues(), w.collective.Queues...)
	if w.windows.engine != nil {
		list = append(list, w.windows.engine.Queues()...)
	}
	list = slices.DeleteFunc(list, func(qp rdma.QP) bool {
		_, path := qp.(*dc.Path)
		return qp == nil || path
	})
	return append(list, w.peers.Initiators()...)
}
