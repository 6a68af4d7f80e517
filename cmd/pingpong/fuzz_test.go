package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// FuzzIBVText reads the address of any ibv_rc_pingpong.
func FuzzIBVText(f *testing.F) {
	f.Add(ibvText)
	f.Add("ffff:ffffff:ffffff:fe80000000000000021122fffe334455")
	f.Add("+001:0x0001:0_0001:00000000000000000000ffff0a000001")
	f.Add(":::")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseIBV(text)
		if err != nil {
			if len(err.Error()) > 5*len(text)+200 {
				t.Errorf("%q: an error of %d bytes", text, len(err.Error()))
			}
			return
		}
		again, err := parseIBV(string(bytes.TrimSuffix(ibvLine(c), []byte{0})))
		if err != nil || again.GID != c.GID || again.LID != c.LID || again.Pairs[0].QPN != c.Pairs[0].QPN || again.PSN != c.PSN {
			t.Errorf("%q reads as %+v, and back as %+v, %v", text, c, again, err)
		}
		if c.Pairs[0].QPN >= 1<<24 || c.PSN >= 1<<24 {
			t.Errorf("%q: queue pair %#x, PSN %#x", text, c.Pairs[0].QPN, c.PSN)
		}
	})
}

// A spoken is a connection whose other end says what was written down.
type spoken struct {
	io.Reader
	net.Conn
}

func (s spoken) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s spoken) Write(b []byte) (int, error) { return len(b), nil }
func (s spoken) SetDeadline(time.Time) error { return nil }
func (s spoken) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
func (s spoken) Close() error                { return nil }
func dictate(text []byte, serves bool) *tcpControl {
	return &tcpControl{conn: spoken{Reader: bytes.NewReader(text)}, r: bufio.NewReader(bytes.NewReader(text)), serves: serves, timeout: time.Minute}
}

// FuzzCard has the other end of a ping-pong say anything: its greeting, its card, and
// that it is there. What an end takes for a card is one.
func FuzzCard(f *testing.F) {
	p := &params{op: opSend, size: 8, pairs: 1, iterations: 10, depth: 4}
	greeting, err := json.Marshal(hello{Program: program, Server: true, Task: p.task(), Secret: make([]byte, 32)})
	if err != nil {
		f.Fatal(err)
	}
	mine, err := json.Marshal(card{GID: rdma.GID{15: 1}, Endpoint: []byte("e"), Pairs: []pair{{QPN: 7}}, MTU: rdma.MTU1024, Addr: 1 << 40, Length: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(fmt.Appendf(nil, "%s\n%s\n\"here\"\n", greeting, mine))
	f.Add(fmt.Appendf(nil, "%s\n{\"gid\": [1,2,3], \"mtu\": 300}\nnull\n", greeting))
	f.Add([]byte("{\"program\": \"gorun pingpong 3\"}\n"))
	f.Add([]byte("0000:000000:000000:00000000000000000000000000000000\x00"))
	f.Add(bytes.Repeat([]byte("x"), maxLine+2))
	f.Fuzz(func(t *testing.T, says []byte) {
		ctx := context.Background()
		ctl := dictate(says, false)
		secret, err := agree(ctx, ctl, p)
		if err != nil {
			if len(err.Error()) > 2000+2*maxLine {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(secret) < 16 {
			t.Errorf("a secret of %d bytes", len(secret))
		}
		theirs, err := swap(ctx, ctl, card{})
		if err != nil {
			return
		}
		b, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		var again card
		if err := json.Unmarshal(b, &again); err != nil || again.GID != theirs.GID || !slices.Equal(again.Pairs, theirs.Pairs) || !bytes.Equal(again.Endpoint, theirs.Endpoint) {
			t.Errorf("%s reads back as %+v, %v", b, again, err)
		}
		if err := ctl.barrier(ctx); err == nil && !bytes.Contains(says, []byte(`"here"`)) {
			t.Errorf("%q ends with a meeting", says)
		}
	})
}
