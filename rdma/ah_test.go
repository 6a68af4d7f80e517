package rdma

import (
	"errors"
	"testing"
)

func TestGRH(t *testing.T) {
	want := GRH{TrafficClass: 0xa5, FlowLabel: 0x12345, PayLen: 88, NextHdr: 27, HopLimit: 63, SGID: GID{0: 0xfe, 1: 0x80, 15: 1}, DGID: GID{0: 0xfe, 1: 0x80, 15: 2}}
	b := want.Append(nil)
	if len(b) != GRHLen {
		t.Fatalf("a header of %d bytes", len(b))
	}
	if got, err := ParseGRH(b); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	av, err := ReplyAV(WC{Flags: WCFlagGRH}, b, 1)
	if err != nil || av.DGID != want.SGID || av.PortNum != 1 || av.HopLimit == 0 {
		t.Errorf("ReplyAV: %+v, %v", av, err)
	}
	if _, err := ReplyAV(WC{}, b, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("ReplyAV without a GRH: %v", err)
	}
}

// Over IPv4 the first 20 bytes are not written (RoCE v2, section A17.4.5.2).
func TestGRHOfIPv4(t *testing.T) {
	b := make([]byte, GRHLen)
	copy(b[20:], []byte{0x45, 0x02, 0, 120, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	got, err := ParseGRH(b)
	want := GRH{TrafficClass: 2, PayLen: 100, NextHdr: 17, HopLimit: 64,
		SGID: GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, DGID: GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for n := range GRHLen {
		if _, err := ParseGRH(b[:n]); err == nil {
			t.Errorf("%d bytes were taken for a header", n)
		}
	}
	b[20] = 0x55
	if _, err := ParseGRH(b); err == nil {
		t.Error("IP version 5 was taken")
	}
}
