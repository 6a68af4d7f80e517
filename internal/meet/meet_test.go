package meet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// begin starts hosts at addresses; an address that cannot be parsed is the error of finding one.
func begin(t *testing.T, ctx context.Context, addresses ...string) []Stream {
	t.Helper()
	var streams []Stream
	for _, text := range addresses {
		inR, inW := pipe(t)
		outR, outW := pipe(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer outW.Close()
			defer inR.Close()
			_, _ = io.WriteString(outW, "Welcome!\nno line end, and then\n")
			_ = Serve(ctx, inR, outW, func(Order) (netip.Addr, string, error) {
				a, err := netip.ParseAddr(text)
				return a, "a test says so", err
			})
		}()
		t.Cleanup(func() {
			inW.Close()
			outR.Close()
			<-ended
		})
		streams = append(streams, Stream{inW, outR})
	}
	return streams
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func TestAllMeet(t *testing.T) {
	testenv.NoLeaks(t)
	hosts := All(t.Context(), begin(t, t.Context(), "127.0.0.1", "127.0.0.2", "127.0.0.3"), make([]Order, 3))
	for i, h := range hosts {
		if h.Err != nil || h.Address != fmt.Sprintf("127.0.0.%d", i+1) || h.Why != "a test says so" || h.Host == "" {
			t.Fatalf("host %d: %+v", i, h)
		}
		for j, c := range h.Calls {
			if c.TCP != "" || c.UDP != "" || (c.Took > 0) != (i != j) {
				t.Errorf("host %d calls %d: %+v", i, j, c)
			}
		}
	}
}

// With a range of ports hosts listen at these alone, and those that find none of them free say so.
func TestAllMeetAtPorts(t *testing.T) {
	testenv.NoLeaks(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	one := taken.Addr().(*net.TCPAddr).Port
	wide := ports.Range{First: 42000, Last: 42999}
	hosts := All(t.Context(), begin(t, t.Context(), "127.0.0.1", "127.0.0.2", "127.0.0.1"), []Order{{Ports: wide}, {Ports: wide}, {Ports: ports.Range{First: one, Last: one}}})
	for i, h := range hosts[:2] {
		if h.Err != nil || h.TCP < wide.First || h.TCP > wide.Last || h.UDP < wide.First || h.UDP > wide.Last {
			t.Errorf("host %d: %+v, want ports of %v", i, h, wide)
		}
		if c := h.Calls[1-i]; c.TCP != "" || c.UDP != "" {
			t.Errorf("host %d calls the other: %+v", i, c)
		}
	}
	if err := hosts[2].Err; err == nil || !strings.Contains(err.Error(), fmt.Sprintf("all 1 ports of %d-%d are in use", one, one)) {
		t.Errorf("the host whose port is taken: %v", err)
	}
}

// A host that cannot take part is named, and the others meet.
func TestAHostIsMissing(t *testing.T) {
	testenv.NoLeaks(t)
	streams := begin(t, t.Context(), "127.0.0.1", "no address", "127.0.0.1")
	streams = append(streams,
		Stream{discard{}, strings.NewReader("bash: gorun-agent: not found\n")},
		Stream{discard{}, strings.NewReader(`{"Meet":99}` + "\n")},
		Stream{discard{}, strings.NewReader(strings.Repeat("x\n", strayMost))},
		Stream{discard{}, strings.NewReader(`{"Meet":1,"Address":"127.0.0.1"}` + "\n" + `{"Calls":[]}` + "\n")},
		Stream{discard{}, iotest.ErrReader(errors.New("broken"))})
	hosts := All(t.Context(), streams, make([]Order, len(streams)))
	for i, want := range []string{"", "unable to parse IP", "", "EOF", "version 99, expected 1", "other text, expected a line that begins", "the calls of 0 hosts, expected 8", "broken"} {
		if h := hosts[i]; (h.Err == nil) != (want == "") || h.Err != nil && !strings.Contains(h.Err.Error(), want) {
			t.Errorf("host %d: %v, want %q", i, h.Err, want)
		}
	}
	if c := hosts[0].Calls[2]; c.TCP != "" || c.UDP != "" {
		t.Errorf("the first calls the third: %+v", c)
	}
	// Nothing listens on port 0 of the one that said so.
	if c := hosts[0].Calls[6]; c.TCP == "" || c.UDP == "" {
		t.Errorf("the first calls one that is not there: %+v", c)
	}
}

// What does not know the key gets no answer.
func TestStrangers(t *testing.T) {
	testenv.NoLeaks(t)
	l, err := listen(make([]byte, KeySize), netip.MustParseAddr("127.0.0.1"), ports.Range{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	tcp, udp := l.ports()
	ctx, cancel := context.WithTimeout(t.Context(), 2*askEvery)
	defer cancel()
	wrong := bytes.Repeat([]byte{1}, KeySize)
	if c := call(ctx, wrong, Peer{"127.0.0.1", tcp, udp}); !strings.Contains(c.TCP, "connected, and then: ") || c.UDP == "" {
		t.Errorf("a call with another key: %+v", c)
	}
	if c := call(t.Context(), make([]byte, KeySize), Peer{"127.0.0.1", tcp, udp}); c.TCP != "" || c.UDP != "" {
		t.Errorf("a call with the key: %+v", c)
	}
	if _, err := listen(wrong[1:], netip.MustParseAddr("127.0.0.1"), ports.Range{}); err == nil {
		t.Error("a key that is too short was taken")
	}
}

// A host ends with its stream, and with its context, wherever it is.
func TestServeEnds(t *testing.T) {
	at := func(Order) (netip.Addr, string, error) { return netip.MustParseAddr("127.0.0.1"), "", nil }
	order, _ := json.Marshal(Order{Key: make([]byte, KeySize)})
	for name, c := range map[string]struct {
		says string
		err  bool
	}{
		"at once":           {"", true},
		"with half a word":  {`{"Key`, true},
		"after the order":   {string(order), false},
		"after the peers":   {string(order) + `{"Peers":[{},{}]}`, false},
		"with other things": {string(order) + `[1]`, true},
		"with a short key":  {`{"Key":"AAAA"}`, false}, // whoever asks is told why
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			if err := Serve(t.Context(), strings.NewReader(c.says), io.Discard, at); (err != nil) != c.err {
				t.Errorf("%v, want an error: %v", err, c.err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("enough"))
			r, w := net.Pipe()
			defer r.Close()
			go func() {
				_, _ = io.WriteString(w, c.says)
				w.Close()
			}()
			_ = Serve(ctx, r, io.Discard, at)
		})
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
