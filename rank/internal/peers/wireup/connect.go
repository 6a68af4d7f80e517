package wireup

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rdma"
)

const (
	// atomicsMost is how many reads of a peer a queue pair answers at a time:
	// what most adapters offer.
	atomicsMost = 16
	// timeout is the code of the ack timeout, 1.07 s. With retries a host that
	// acknowledges nothing is given up after some 8 s, unless the device has more patience (soft.Config.Silence).
	timeout = 18
	// rnrTimer is the code of 0.64 ms: receives are missing only where many peers
	// share them and all send at once, or when a peer gives up.
	rnrTimer = 12
	retries  = 7
	hops     = 64
	// initiatorRetries is how often an initiator, which others need too, asks a peer that has
	// no receive: some 4 ms.
	initiatorRetries = 6
)

// A Target is where a rank's dynamically connected peers send to: its queue pair and access
// key. Number 0: it has none.
type Target struct {
	Number uint32
	Key    uint64
}

// A Port is what one side of a connection says about its device.
type Port struct {
	Attr rdma.DeviceAttr
	MTU  rdma.MTU
}

// MailPort is where the mail of the card's rank goes.
func MailPort(card *Card) mail.Port { return mail.Port{AV: AVOf(card), Address: card.Mail} }

// Connect brings a queue pair in INIT to RTS with the peer of the card. number
// is the peer's queue pair.
func Connect(qp rdma.QP, own Port, peer *Card, number uint32) error {
	mtu := min(own.MTU, peer.MTU)
	err := qp.Modify(rdma.QPAttr{
		State: rdma.StateRTR, AV: AVOf(peer), PathMTU: mtu, DestQPNum: number,
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

// AVOf is where the card's rank is.
func AVOf(card *Card) rdma.AV { return rdma.AV{DGID: card.GID, PortNum: 1, HopLimit: hops} }

// Initiate brings a dynamically connected initiator in RESET to RTS.
func Initiate(qp rdma.QP, own Port) error {
	err := qp.Modify(rdma.QPAttr{State: rdma.StateInit, PortNum: 1}, rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask)
	if err != nil {
		return fmt.Errorf("modify an initiator to INIT: %w", err)
	}
	if err = qp.Modify(rdma.QPAttr{State: rdma.StateRTR, PathMTU: own.MTU}, rdma.QPStateMask|rdma.QPPathMTUMask); err != nil {
		return fmt.Errorf("modify an initiator to RTR: %w", err)
	}
	err = qp.Modify(rdma.QPAttr{
		State: rdma.StateRTS, Timeout: timeout, RetryCnt: retries, RNRRetry: initiatorRetries, MaxRdAtomic: uint8(min(own.Attr.MaxQPInitRdAtom, atomicsMost)),
	}, rdma.QPStateMask|rdma.QPTimeoutMask|rdma.QPRetryCntMask|rdma.QPRNRRetryMask|rdma.QPSQPSNMask|rdma.QPMaxRdAtomicMask)
	if err != nil {
		return fmt.Errorf("modify an initiator to RTS: %w", err)
	}
	return nil
}

// Answer brings a target in RESET to RTR, where it answers. Its number holds from then on.
func Answer(qp rdma.QP, own Port, gid rdma.GID) error {
	const access = rdma.AccessRemoteRead | rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic
	err := qp.Modify(rdma.QPAttr{State: rdma.StateInit, PortNum: 1, AccessFlags: access},
		rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPAccessFlagsMask)
	if err != nil {
		return fmt.Errorf("modify a target to INIT: %w", err)
	}
	err = qp.Modify(rdma.QPAttr{State: rdma.StateRTR, AV: rdma.AV{DGID: gid, PortNum: 1, HopLimit: hops}, PathMTU: own.MTU, MinRNRTimer: rnrTimer},
		rdma.QPStateMask|rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPMinRNRTimerMask)
	if err != nil {
		return fmt.Errorf("modify a target to RTR: %w", err)
	}
	return nil
}
