package rdma_test

import (
	"bytes"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// FuzzParseGRH reads what stands in front of any datagram.
func FuzzParseGRH(f *testing.F) {
	f.Add(rdma.GRH{TrafficClass: 3, FlowLabel: 0xfffff, PayLen: 8, NextHdr: 27, HopLimit: 1, SGID: rdma.GID{0: 0xfe, 1: 0x80, 15: 1}, DGID: rdma.GID{15: 2}}.Append(nil))
	ip := make([]byte, rdma.GRHLen)
	copy(ip[20:], []byte{0x45, 1, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	f.Add(ip)
	f.Add(make([]byte, rdma.GRHLen))
	f.Add([]byte{0x60})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := rdma.ParseGRH(b)
		if err != nil {
			if h != (rdma.GRH{}) {
				t.Errorf("%x: %+v beside %v", b, h, err)
			}
			return
		}
		// What was IPv4 is written as IPv6.
		again, err := rdma.ParseGRH(h.Append(nil))
		if err != nil || again != h {
			t.Errorf("%x is %+v, and reads back as %+v, %v", b, h, again, err)
		}
		if b[0]>>4 == 6 && !bytes.Equal(h.Append(nil), b[:rdma.GRHLen]) {
			t.Errorf("%x is written as %x", b[:rdma.GRHLen], h.Append(nil))
		}
	})
}

// FuzzParseTMH reads the header of any tagged message.
func FuzzParseTMH(f *testing.F) {
	f.Add(rdma.TMH{Opcode: rdma.TMEager, AppCtx: 1, Tag: 1 << 63}.Append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, rdma.TMHLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < rdma.TMHLen {
			return // the caller's mistake
		}
		h := rdma.ParseTMH(b)
		if again := rdma.ParseTMH(h.Append(nil)); again != h || h.Opcode != rdma.TMOpcode(b[0]) {
			t.Errorf("%x is %+v, and reads back as %+v", b, h, again)
		}
	})
}

// FuzzParseRVH reads the header of any rendezvous.
func FuzzParseRVH(f *testing.F) {
	f.Add(rdma.RVH{Addr: 1 << 40, RKey: 7, Length: 9}.Append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, rdma.RVHLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < rdma.RVHLen {
			return // the caller's mistake
		}
		h := rdma.ParseRVH(b)
		if !bytes.Equal(h.Append(nil), b[:rdma.RVHLen]) {
			t.Errorf("%x is %+v, which is written as %x", b, h, h.Append(nil))
		}
	})
}
