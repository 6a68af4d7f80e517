package soft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// What two providers say to each other over TCP, little-endian. One connection of a
// pair carries the requests and answers of both.
//
// A message of more than pieceSize bytes goes in pieces, of landingSize where the payload is read into its
// place (see landing), each with a header that is complete in itself:
//
//	0 type | 1 op | 2 status or RNR code | 3 flags | 4 length of the payload u32
//	8 to u32 | 12 from u32 (queue pair numbers) | 16 psn u32 | 20 imm u32
//	24 total u32 | 28 offset u32 of the piece | 32 key u32 | 36 life u32
//	40 address u64 | 48 compare or add u64 | 56 swap u64, or 48 the GID of a datagram's target,
//	or 48 the access key of a call
//
// An initiator of DC goes before the first request of a connection with a call, and
// ends the connection with a hang-up, neither of which is answered unless it is
// refused: see qp_dc.go.
type frame struct {
	kind          frameKind
	op            rdma.WROpcode
	code          uint8
	flags         uint8
	length        uint32
	to, from      uint32
	psn, imm      uint32
	total, offset uint32
	key           uint32
	addr          uint64
	life          uint32 // of the requester's connection; answers repeat it
	compareAdd    uint64
	swap          uint64
	gid           rdma.GID // of a datagram, in place of both
}

type frameKind uint8

const (
	frameRequest  frameKind = 1 + iota
	frameAck                // psn and all before are executed; not for reads and atomics
	frameData               // a piece of a read's data, or an atomic's result
	frameNak                // psn failed with status code
	frameNotReady           // psn found no receive; code is the RNR timer
	frameNobody             // no queue pair is there for psn, or it expects another
	frameMessage            // of UC: a request that is not answered
	frameDatagram           // of UD; the key is its Q_Key, and the code the index of the sender's GID
	frameCall               // of DC: connects to a target, for the requests from psn on
	frameHangUp             // of DC: the end of that, with no request under way
	frameBusy               // a CNAK: no responder was free for the call with psn
	frameKinds
)

// frameSolicited: the receiver's completion is a solicited one. frameXRC: the
// requester is of XRC, and swap the number of the shared queue. frameDC: the request
// is one of the connection that the requester has called for.
const (
	frameSolicited = 1 << iota
	frameXRC
	frameDC
	frameFlags = 1<<iota - 1
)

const (
	frameSize   = 64
	pieceSize   = 64 << 10
	landingSize = 256 << 10
)

var le = binary.LittleEndian

var errFrame = errors.New("malformed frame")

func (f *frame) put(b *[frameSize]byte) {
	b[0], b[1], b[2], b[3] = byte(f.kind), byte(f.op), f.code, f.flags
	le.PutUint32(b[4:], f.length)
	le.PutUint32(b[8:], f.to)
	le.PutUint32(b[12:], f.from)
	le.PutUint32(b[16:], f.psn)
	le.PutUint32(b[20:], f.imm)
	le.PutUint32(b[24:], f.total)
	le.PutUint32(b[28:], f.offset)
	le.PutUint32(b[32:], f.key)
	le.PutUint32(b[36:], f.life)
	le.PutUint64(b[40:], f.addr)
	if f.kind == frameDatagram {
		copy(b[48:], f.gid[:])
		return
	}
	le.PutUint64(b[48:], f.compareAdd)
	le.PutUint64(b[56:], f.swap)
}

// parseFrame reads a header. Sizes fit each other afterwards: a payload is no
// longer than a piece and lies inside its message.
func parseFrame(b []byte) (f frame, err error) {
	if len(b) < frameSize {
		return f, errFrame
	}
	f = frame{
		kind: frameKind(b[0]), op: rdma.WROpcode(b[1]), code: b[2], flags: b[3], length: le.Uint32(b[4:]),
		to: le.Uint32(b[8:]), from: le.Uint32(b[12:]), psn: le.Uint32(b[16:]), imm: le.Uint32(b[20:]),
		total: le.Uint32(b[24:]), offset: le.Uint32(b[28:]), key: le.Uint32(b[32:]), life: le.Uint32(b[36:]),
		addr: le.Uint64(b[40:]),
	}
	if f.kind == frameDatagram {
		f.gid = rdma.GID(b[48:])
	} else {
		f.compareAdd, f.swap = le.Uint64(b[48:]), le.Uint64(b[56:])
	}
	o := f.op.Operation()
	switch {
	case f.kind == 0 || f.kind >= frameKinds || f.flags&^frameFlags != 0:
		return f, fmt.Errorf("%w: type %d", errFrame, b[0])
	case !o.GoesOut():
		return f, fmt.Errorf("%w: operation %d", errFrame, f.op)
	case f.psn > psnMask || f.total > maxMessage || f.length > landingSize || f.offset > f.total || f.length > f.total-f.offset:
		return f, fmt.Errorf("%w: %d bytes at %d of %d, PSN %#x", errFrame, f.length, f.offset, f.total, f.psn)
	}
	carries := f.kind == frameData || f.kind == frameDatagram || (f.kind == frameRequest || f.kind == frameMessage) && !o.Fetches()
	switch {
	case f.kind == frameDatagram && (!o.OnType(rdma.UD) || f.total > mtu || f.offset != 0),
		f.kind == frameMessage && !o.OnType(rdma.UC):
		return f, fmt.Errorf("%w: operation %d of %d bytes with type %d", errFrame, f.op, f.total, f.kind)
	case !carries && f.length != 0:
		return f, fmt.Errorf("%w: a payload of %d bytes with type %d", errFrame, f.length, f.kind)
	case carries && f.length != min(f.total-f.offset, pieceSize) && f.length != min(f.total-f.offset, landingSize):
		return f, fmt.Errorf("%w: a piece of %d bytes at %d of %d", errFrame, f.length, f.offset, f.total)
	}
	return f, nil
}

// last tells whether a piece ends its message.
func (f *frame) last() bool { return f.offset+f.length == f.total }

// request is the request that a frame is of, as its responder sees it.
func (f *frame) request(wr *rdma.SendWR) {
	*wr = rdma.SendWR{Opcode: f.op, ImmData: f.imm, RemoteAddr: f.addr, RKey: f.key, CompareAdd: f.compareAdd, Swap: f.swap,
		InvalidateRKey: f.imm, SRQNum: uint32(f.swap)}
	if f.flags&frameSolicited != 0 {
		wr.Flags = rdma.SendSolicited
	}
}

// message is what the receiver is told of a message that has arrived.
func (f *frame) message() delivery {
	return delivery{op: f.op, solicited: f.flags&frameSolicited != 0, n: f.total, imm: f.imm, srcQP: f.from}
}
