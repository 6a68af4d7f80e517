package rdma

import (
	"encoding/binary"
	"fmt"
)

// An AH is an address handle: the destination port of datagrams and of
// dynamically connected requests (struct ibv_ah).
type AH interface {
	PD() PD
	// Close destroys the handle. Requests that use it must be complete.
	Close() error
}

// GRHLen is the length in bytes of the global routing header, which precedes the payload in
// the receive buffer of every datagram. The buffer must be that much longer than the message,
// and [WC].ByteLen includes it. The header is valid only if the completion has [WCFlagGRH].
const GRHLen = 40

// A GRH is a global routing header (struct ibv_grh).
type GRH struct {
	TrafficClass uint8
	FlowLabel    uint32
	PayLen       uint16
	NextHdr      uint8
	HopLimit     uint8
	SGID, DGID   GID
}

// Append appends the header in the format of a receive buffer.
func (h GRH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.TrafficClass)<<20|h.FlowLabel&0xfffff)
	b = binary.BigEndian.AppendUint16(b, h.PayLen)
	b = append(b, h.NextHdr, h.HopLimit)
	b = append(b, h.SGID[:]...)
	return append(b, h.DGID[:]...)
}

// ParseGRH reads the header at the beginning of a datagram's receive buffer b. For RoCE over IPv4
// the last 20 bytes of it are an IPv4 header; ParseGRH returns its addresses as IPv4-mapped GIDs.
func ParseGRH(b []byte) (GRH, error) {
	if len(b) < GRHLen {
		return GRH{}, fmt.Errorf("the buffer has %d bytes, expected at least %d for a global routing header", len(b), GRHLen)
	}
	first := binary.BigEndian.Uint32(b)
	if first>>28 == 6 {
		h := GRH{
			TrafficClass: uint8(first >> 20), FlowLabel: first & 0xfffff,
			PayLen: binary.BigEndian.Uint16(b[4:]), NextHdr: b[6], HopLimit: b[7],
		}
		copy(h.SGID[:], b[8:24])
		copy(h.DGID[:], b[24:40])
		return h, nil
	}
	ip := b[20:40]
	if ip[0]>>4 != 4 {
		return GRH{}, fmt.Errorf("no global routing header: IP version %d, and %d in the place of an IPv4 header", first>>28, ip[0]>>4)
	}
	h := GRH{TrafficClass: ip[1], NextHdr: ip[9], HopLimit: ip[8]}
	if total := binary.BigEndian.Uint16(ip[2:]); total >= 20 {
		h.PayLen = total - 20
	}
	mapped := GID{10: 0xff, 11: 0xff}
	h.SGID, h.DGID = mapped, mapped
	copy(h.SGID[12:], ip[12:16])
	copy(h.DGID[12:], ip[16:20])
	return h, nil
}

// ReplyAV returns the address vector for a reply to the sender of a datagram
// that was received on port (ibv_init_ah_from_wc). buf is the receive buffer.
func ReplyAV(wc WC, buf []byte, port uint8) (AV, error) {
	if wc.Flags&WCFlagGRH == 0 {
		return AV{}, &OpError{"init_ah_from_wc", "the completion has no GRH", ErrInvalid}
	}
	h, err := ParseGRH(buf)
	if err != nil {
		return AV{}, &OpError{"init_ah_from_wc", err.Error(), ErrInvalid}
	}
	return AV{DGID: h.SGID, HopLimit: 64, PortNum: port}, nil
}
