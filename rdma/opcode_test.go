package rdma

import (
	"fmt"
	"strings"
	"testing"
)

// Every row is whole: what an operation moves says what else it must have.
func TestOperationsHaveNoHoles(t *testing.T) {
	names := map[string]bool{}
	for _, op := range Opcodes() {
		o := op.Operation()
		if o.Name == "" || names[o.Name] || o.Entry == 0 || o.On == 0 {
			t.Errorf("operation %d: no name of its own, no size of its entry, or no queue pair has it: %+v", op, o)
		}
		names[o.Name] = true
		remote := o.Moves == MovesToMemory || o.Moves == MovesFromMemory || o.Moves == MovesWord
		for _, c := range []struct {
			what string
			is   bool
			want bool
		}{
			{"names memory of the responder", o.Needs&NeedsRemote != 0, remote},
			{"needs a right there", o.Access != 0, remote},
			{"has operands", o.Needs&NeedsOperands != 0, o.Moves == MovesWord},
			{"has a length of its own", o.Bytes == 8, o.Moves == MovesWord},
			{"says what becomes of the word", o.Word != 0, o.Moves == MovesWord},
			{"completes as it moves", o.Done == map[Moves]WCOpcode{MovesToMemory: WCRDMAWrite, MovesToReceive: WCSend, MovesFromMemory: WCRDMARead}[o.Moves],
				o.Moves != MovesKey && o.Moves != MovesWord},
			{"takes a receive request", o.Received != 0, o.Moves == MovesToReceive || o.Needs&NeedsImm != 0},
			{"tells the receiver of its immediate", o.Flags&WCFlagWithImm != 0, o.Needs&NeedsImm != 0},
			{"tells the receiver of its key", o.Flags&WCFlagWithInv != 0, o.GoesOut() && o.Needs&NeedsKey != 0},
			{"names a key of the own side", o.Needs&(NeedsKey|NeedsWindow|NeedsLayout) != 0, o.Moves == MovesKey || o.Flags&WCFlagWithInv != 0},
			{"is for reliable transports only", o.On&(1<<UC|1<<UD) == 0, o.Fetches() || o.Flags&WCFlagWithInv != 0},
		} {
			if c.is != c.want {
				t.Errorf("%v: %s: %t, want %t", op, c.what, c.is, c.want)
			}
		}
	}
	for value := range 256 {
		op := WROpcode(value)
		switch o := op.Operation(); {
		case o.Moves == MovesNot && (o.On != 0 || op.String() != fmt.Sprintf("operation %d", value)):
			t.Errorf("operation %d is none, and has the row %+v", value, o)
		case o.Moves != MovesNot && op > WRSendWithInv && op < WRRegMkey:
			t.Errorf("%v has the value %d: libibverbs may give 10 to 15 to operations of its own", op, value)
		}
	}
}

// The table, to be read: what is posted where, and who completes with what.
func TestOperationTranscript(t *testing.T) {
	const want = `
RDMA write                 value 0   right 2 entry 32  done 1   received 0   on RC UC XRCSend DCI
RDMA write with immediate  value 1   right 2 entry 32  done 1   received 129 on RC UC XRCSend DCI
send                       value 2   right 0 entry 16  done 0   received 128 on RC UC UD XRCSend DCI
send with immediate        value 3   right 0 entry 16  done 0   received 128 on RC UC UD XRCSend DCI
RDMA read                  value 4   right 4 entry 32  done 2   received 0   on RC XRCSend DCI
compare and swap           value 5   right 8 entry 48  done 3   received 0   on RC XRCSend DCI
fetch and add              value 6   right 8 entry 48  done 4   received 0   on RC XRCSend DCI
local invalidate           value 7   right 0 entry 128 done 6   received 0   on RC UC XRCSend DCI
bind window                value 8   right 0 entry 192 done 5   received 0   on RC UC XRCSend DCI
send with invalidate       value 9   right 0 entry 16  done 0   received 128 on RC XRCSend DCI
register Mkey              value 16  right 0 entry 128 done 16  received 0   on RC UC XRCSend DCI
`
	var b strings.Builder
	for _, op := range Opcodes() {
		o := op.Operation()
		fmt.Fprintf(&b, "\n%-26v value %-3d right %d entry %-3d done %-3d received %-3d on", op, uint8(op), o.Access, o.Entry, o.Done, o.Received)
		for _, x := range []struct {
			typ  QPType
			name string
		}{{RC, "RC"}, {UC, "UC"}, {UD, "UD"}, {XRCSend, "XRCSend"}, {XRCRecv, "XRCRecv"}, {DCI, "DCI"}, {DCT, "DCT"}} {
			if o.OnType(x.typ) {
				b.WriteString(" " + x.name)
			}
		}
	}
	b.WriteString("\n")
	if b.String() != want {
		t.Errorf("got%s\nwant%s", b.String(), want)
	}
}

// Counting an operation counts it in one place.
func TestCountersCount(t *testing.T) {
	for _, op := range Opcodes() {
		var got Counters
		got.Count(op.Operation(), 2, 10)
		want := map[Moves]Counters{MovesToMemory: {Writes: 2, WriteBytes: 10}, MovesToReceive: {Sends: 2, SendBytes: 10},
			MovesFromMemory: {Reads: 2, ReadBytes: 10}, MovesWord: {Atomics: 2}, MovesKey: {}}[op.Operation().Moves]
		if got != want {
			t.Errorf("%v: counted %+v, want %+v", op, got, want)
		}
	}
}
