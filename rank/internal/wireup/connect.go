package wireup

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/mail"
	"github.com/gorun-mpi/gorun/rdma"
)

const (
	// atomicsMost is how many reads of a peer a queue pair answers at a time:
	// what most adapters offer.
	atomicsMost = 16
	// timeout is the code of the ack timeout, 1.07 s: an answer may take as
	// long as the peer's process is not scheduled, where it is its software
	// that answers. With retries a silent peer is given up after some 8 s.
	timeout = 18
	// rnrTimer is the code of 0.64 ms: receives are missing only where many peers
	// share them and all send at once, or when a peer gives up.
	rnrTimer = 12
	retries  = 7
	hops     = 64
)

// A Port is what one side of a connection says about its device.
type Port struct {
	Attr rdma.DeviceAttr
	MTU  rdma.MTU
}

// MailPort is where the mail of the card's rank goes.
func MailPort(card *Card) mail.Port {
	return mail.Port{AV: rdma.AV{DGID: card.GID, PortNum: 1, HopLimit: hops}, Address: card.Mail}
}

// Connect brings a queue pair in INIT to RTS with the peer of the card. number
// is the peer's queue pair.
func Connect(qp rdma.QP, own Port, peer *Card, number uint32) error {
	mtu := min(own.MTU, peer.MTU)
	err := qp.Modify(rdma.QPAttr{
		State: rdma.StateRTR, AV: rdma.AV{DGID: peer.GID, PortNum: 1, HopLimit: hops}, PathMTU: mtu, DestQPNum: number,
		MaxDestRdAtomic: uint8(min(own.Attr.MaxQPRdAtom, atomicsMost)), MinRNRTimer: rnrTimer,
	}, rdma.QPStateMask|rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPDestQPNMask|rdma.QPRQPSNMask|rdma.QPMaxDestRdAtomicMask|rdma.QPMinRNRTimerMask)
	if err != nil {
		return fmt.Errorf("modify qp to RTR: %w", err)
	}
	err = qp.Modify(rdma.QPAttr{
		State: rdma.StateRTS, Timeout: timeout, RetryCnt: retries, RNRRetry: 7, MaxRdAtomic: uint8(min(own.Attr.MaxQPInitRdAtom, atomicsMost)),
	}, rdma.QPStateMask|rdma.QPTimeoutMask|rdma.QPRetryCntMask|rdma.QPRNRRetryMask|rdma.QPSQPSNMask|rdma.QPMaxRdAtomicMask)
	if err != nil {
		return fmt.Errorf("modify qp to RTS: %w", err)
	}
	return nil
}
