package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestAddresses(t *testing.T) {
	links := func() []string { return []string{"lo"} }
	for _, c := range []struct{ given, want, err string }{
		{"a:1", "a:1", ""},
		{"a", "a:7", ""},
		{"a, b:2,a:7", "a:7 b:2", ""},
		{"10.0.0.1:35001", "10.0.0.1:35001", ""},
		{"[fd00::2]:35001", "[fd00::2]:35001", ""},
		{"[fd00::2]", "[fd00::2]:7", ""},
		{"fd00::2", "[fd00::2]:7", ""},
		{"[fe80::1%lo]:35001", "[fe80::1%lo]:35001", ""},
		{"[fe80::1]:35001", "", "without an interface, expected [fe80::1%lo]:35001; interfaces: lo"},
		{"fe80::1", "", "expected [fe80::1%lo]:7; interfaces: lo"},
		{"[fe80::1%none0]:1", "", `there is no interface "none0"; interfaces: lo`},
		{"", "", "no host"},
		{":1", "", "no host"},
		{"a:", "", "no port behind the :"},
		{"[fd00::2]:", "", "no port behind the :"},
		{"a:x", "", `the port "x" is no number up to 65535`},
		{"a:65536", "", "is no number up to 65535"},
		{"[a]:1", "", `"a" is no address of IPv6`},
		{"[fd00::2", "", "behind [ follow"},
		{"[fd00::2]1", "", "behind [ follow"},
		{"a:b:c", "", "several colons"},
	} {
		got, err := parseAddresses(c.given, 7, links)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v; want %q, %q", c.given, got, err, c.want, c.err)
		}
	}
	if _, err := parseAddresses("a", 0, links); err == nil || !strings.Contains(err.Error(), "-p/--port gives none") {
		t.Errorf("no port at all: %v", err)
	}
}

func FuzzAddresses(f *testing.F) {
	f.Add("[fe80::1%eth0]:35001,a:1,b", 7)
	f.Fuzz(func(t *testing.T, list string, port int) {
		all, err := parseAddresses(list, port&0xffff, func() []string { return nil })
		if err == nil && len(all) == 0 {
			t.Errorf("%q: no addresses and no error", list)
		}
	})
}

func TestOverlapFormulas(t *testing.T) {
	for _, c := range []struct{ network, compute, run, doca, osu float64 }{
		{1, 1, 1, 100, 100},
		{1, 1, 2, 0, 0},
		{1, 1, 1.5, 50, 50},
		{0.8, 1.2, 1.2, 800. / 12, 100},
		{1, 1.2, 2.2, 0, 0},
		{1, 1, 3, 0, 0},
		{1, 1, 0.5, 100, 100},
	} {
		if d, o := overlapDOCA(c.network, c.compute, c.run), overlapOSU(c.network, c.compute, c.run); math.Abs(d-c.doca) > 1e-9 || math.Abs(o-c.osu) > 1e-9 {
			t.Errorf("network %v, compute %v, run %v: %v and %v, want %v and %v", c.network, c.compute, c.run, d, o, c.doca, c.osu)
		}
	}
}

// Each wrong element is found, and floats may differ by the order of combining.
func TestWrongResultsAreFound(t *testing.T) {
	for _, typ := range group.Types() {
		c := group.Config{Size: 300, Type: typ, Operation: "sum", Batch: 2, Batches: 1, Algorithm: group.Auto}
		v := newVectors(c, [][]byte{make([]byte, c.Bytes()), make([]byte, c.Bytes())}, 3)
		for _, b := range v.all {
			copy(b, v.want)
		}
		if err := v.verify(); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		v.all[1][len(v.want)-1] ^= 0x40
		if v.verify() == nil {
			t.Errorf("%s: a wrong second result was not found", typ)
		}
		v.first = nil
		v.all[0][len(v.want)-1] ^= 0x40
		if v.verify() == nil {
			t.Errorf("%s: a wrong first result was not found", typ)
		}
	}
	c := group.Config{Size: 256, Type: "byte"}
	if b := ramp(c); b[254] != 254 || b[255] != 0 {
		t.Errorf("a ramp of bytes goes on with %d, %d", b[254], b[255])
	}
	c = group.Config{Size: 3, Type: "int"}
	if b := ramp(c); binary.NativeEndian.Uint32(b[8:]) != 2 {
		t.Errorf("a ramp of ints is %v", b)
	}
}

func TestRanksGetTheirParts(t *testing.T) {
	client := func(mode string) card { return card{Role: roleClient, Mode: mode, host: "a"} }
	none := func(mode string) card { return card{Mode: mode, host: "a"} }
	daemon := func(host string, clients int) card {
		return card{Role: roleDaemon, Mode: modeDirect, host: host, Clients: clients}
	}
	on := func(host string) card { return card{Role: roleClient, Mode: modeOffloaded, host: host} }
	for _, c := range []struct {
		name  string
		cards []card
		want  string // of each rank: d with its clients, c for a client by itself, or its daemon
		err   string
	}{
		{"all by themselves", []card{none(modeDirect), none(modeDirect)}, "c c", ""},
		{"rank 0 is the daemon", []card{none(modeOffloaded), none(modeOffloaded), none(modeOffloaded)}, "d2 0 0", ""},
		{"both kinds", []card{daemon("a", 0), client(modeOffloaded), client(modeDirect)}, "d1 0 c", ""},
		{"a daemon on each host", []card{on("a"), on("b"), daemon("b", 0), daemon("a", 0), on("a")}, "3 2 d1 d2 3", ""},
		{"a daemon that is full", []card{daemon("a", 1), daemon("b", 0), on("a"), on("a")}, "d1 d1 0 1", ""},
		{"shared out", []card{daemon("a", 0), daemon("a", 0), on("a"), on("a")}, "d1 d1 0 1", ""},
		{"no daemon", []card{client(modeOffloaded), client(modeDirect)}, "", "rank 0 is an offloaded client, and no rank is a daemon"},
		{"no room", []card{daemon("a", 1), on("a"), on("a")}, "", "rank 2 is an offloaded client, and no daemon has room"},
		{"too few", []card{daemon("a", 2), on("a")}, "", "rank 0 is a daemon of 2 clients (-c), and 1 are there"},
		{"none", []card{daemon("a", 0), client(modeDirect)}, "", "rank 0 is a daemon, and no rank is its client"},
	} {
		parts, err := arrange(c.cards)
		var got []string
		for _, p := range parts {
			switch {
			case p.role == roleDaemon:
				got = append(got, fmt.Sprintf("d%d", p.clients))
			case p.mode == modeDirect:
				got = append(got, "c")
			default:
				got = append(got, fmt.Sprint(p.daemon))
			}
		}
		if c.err == "" && (err != nil || strings.Join(got, " ") != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.err)
		}
	}
}

// says is a standard error that tells when a line has come.
type says struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	said chan string // gets the text from want on, once
}

func (s *says) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if _, rest, ok := strings.Cut(s.text.String(), s.want); ok && s.said != nil && strings.Contains(rest, "\n") {
		s.said <- rest
		s.said = nil
	}
	return len(b), nil
}

// A daemon and its client in one process: figures that fit together, in text and JSON.
func TestDaemonAndClient(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	errOut := &says{want: "listening on port ", said: make(chan string, 1)}
	said := errOut.said
	daemon := make(chan int, 1)
	var daemonOut strings.Builder
	go func() {
		daemon <- run(ctx, strings.Fields("-r daemon -c 1 -s 1000 -d int -i 3 -b 4 --output-json -"), nil, doca.Stdio{Out: &daemonOut, Err: errOut})
	}()
	var port int
	select {
	case line := <-said:
		fmt.Sscan(line, &port)
	case <-ctx.Done():
		t.Fatal("the daemon does not listen")
	}
	var out, clientErr strings.Builder
	status := run(ctx, strings.Fields(fmt.Sprintf("-r client -m offloaded -a 127.0.0.1:%d -s 1000 -d int -i 3 -b 4 --output-json -", port)), nil, doca.Stdio{Out: &out, Err: &clientErr})
	if other := <-daemon; status != 0 || other != 0 {
		t.Fatalf("status %d and %d\n%s%s", status, other, clientErr.String(), errOut.text.String())
	}
	if want := "\"operations\": 24,"; !strings.Contains(daemonOut.String(), want) {
		t.Errorf("no %q in\n%s", want, daemonOut.String())
	}
	if want := "served         1 clients, 24 operations in "; !strings.Contains(daemonOut.String(), want) {
		t.Errorf("no %q in\n%s", want, daemonOut.String())
	}
	text, object, _ := strings.Cut(out.String(), "{")
	for _, want := range []string{"mode           offloaded\n", "operation      sum\n", "datatype       int\n", "batches        3\n", "batch size     4\n", "vector size    1000 (4000 bytes)\n", "\nrun time ", "\ncompute time ", "\nnetwork time ", "% (DOCA), ", "% (OSU)\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var r report
	if err := json.Unmarshal([]byte("{"+object), &r); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	if r.RunMin > r.RunAvg || r.RunAvg > r.RunMax || math.Abs(r.RunTotal-3*r.RunAvg) > 1e-9 || r.Network <= 0 || r.Compute <= 0 || r.OverlapDOCA != overlapDOCA(r.Network, r.Compute, r.RunAvg) {
		t.Errorf("figures %+v", r)
	}
	if r.Vectors != 1 || r.Participants != 1 || r.Batches != 3 || r.Batch != 4 || r.Bytes != 4000 {
		t.Errorf("the run was another one: %+v", r)
	}
}

// The load takes about as long as asked, in one of some tries: the machine may be busy.
func TestLoadIsCalibrated(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	const want = 5 * time.Millisecond
	var all []time.Duration
	good := func(d time.Duration) bool { return d > want/2 && d < 2*want }
	for len(all) < 20 && !slices.ContainsFunc(all, good) {
		n, took := newLoad(computeCPU).calibrate(context.Background(), want)
		if n < 1 {
			t.Fatalf("%d products", n)
		}
		all = append(all, took)
	}
	if !slices.ContainsFunc(all, good) {
		t.Errorf("loads for %v take %v", want, all)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	newLoad(computeCPU).run(ctx, math.MaxInt)
	if d := time.Since(start); d > testenv.Limit(time.Second) {
		t.Errorf("an interrupted load took %v", d)
	}
}

// pair runs a participant that listens and one that names it by an address, in one process. Their
// vectors are shorter than the digest of a result.
func pair(t *testing.T, address func(port int) string) (status int, errOut string) {
	t.Helper()
	ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
	defer cancel()
	first := &says{want: "listening on port ", said: make(chan string, 1)}
	said, done := first.said, make(chan int, 1)
	go func() {
		done <- run(ctx, strings.Fields("-r client -i 1 -b 1 -s 1"), nil, doca.Stdio{Out: io.Discard, Err: first})
	}()
	var port int
	fmt.Sscan(<-said, &port)
	var text strings.Builder
	status = run(ctx, strings.Fields("-r client -m non-offloaded -i 1 -b 1 -s 1 -a "+address(port)), nil, doca.Stdio{Out: io.Discard, Err: &text})
	cancel()
	<-done
	return status, text.String()
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		testenv.Unsupported(t, "needs IPv6: "+err.Error())
	} else {
		l.Close()
	}
	testenv.NoLeaks(t)
	if status, errOut := pair(t, func(port int) string { return fmt.Sprintf("[::1]:%d", port) }); status != 0 {
		t.Errorf("status %d\n%s", status, errOut)
	}
}

// A link-local address works with its interface, and is refused without.
func TestLinkLocalIPv6(t *testing.T) {
	var address net.IP
	var zone string
	all, _ := net.Interfaces()
	for _, i := range all {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && address == nil && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				address, zone = n.IP, i.Name
			}
		}
	}
	if address == nil {
		testenv.Unsupported(t, "needs an interface with a link-local address")
	}
	testenv.NoLeaks(t)
	if status, errOut := pair(t, func(port int) string { return fmt.Sprintf("[%s%%%s]:%d", address, zone, port) }); status != 0 {
		t.Errorf("status %d\n%s", status, errOut)
	}
	status, errOut := pair(t, func(port int) string { return fmt.Sprintf("[%s]:%d", address, port) })
	if status != 1 || !strings.Contains(errOut, fmt.Sprintf("%%%s]:", zone)) {
		t.Errorf("without an interface: status %d\n%s", status, errOut)
	}
}
