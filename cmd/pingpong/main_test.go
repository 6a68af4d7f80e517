package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A server is a run of the command that waits for a client.
type server struct {
	addr   string
	out    strings.Builder
	errOut *lines
	status chan int
}

// lines is a writer that tells of a line that it waits for.
type lines struct {
	strings.Builder
	want  *regexp.Regexp
	found chan string
}

func (l *lines) Write(p []byte) (int, error) {
	if m := l.want.FindSubmatch(p); m != nil {
		l.found <- string(m[1])
	}
	return l.Builder.Write(p)
}

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{status: make(chan int, 1)}
	s.errOut = &lines{want: regexp.MustCompile(`waiting for a client at (\S+)`), found: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.status <- run(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), nil, doca.Stdio{Out: &s.out, Err: s.errOut})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case s.addr = <-s.errOut.found:
	case status := <-s.status:
		t.Fatalf("the server ended with %d: %s", status, s.errOut)
	}
	return s
}

// runClient runs the command as the client of s.
func runClient(s *server, args ...string) (status int, out, errOut string) {
	var o, e strings.Builder
	status = run(context.Background(), append([]string{"--connect", s.addr}, args...), nil, doca.Stdio{Out: &o, Err: &e})
	return status, o.String(), e.String()
}

func TestTutorial(t *testing.T) {
	testenv.NoLeaks(t)
	s := startServer(t)
	status, out, errOut := runClient(s)
	if got := <-s.status; status != 0 || got != 0 {
		t.Fatalf("status %d and %d\n%s\n%s", status, got, errOut, s.errOut)
	}
	if !strings.HasPrefix(out, "client: wrote 4096 bytes to 0x") {
		t.Errorf("the client printed %q", out)
	}
	for _, want := range []string{`the client's write brought "written into the server's memory"`, `: "read out of the client's memory"`} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("the server printed %q, want %q in it", s.out.String(), want)
		}
	}
}

// Every operation, in sizes that are inline, not inline, and odd; more messages
// than the depth, and fewer.
func TestOperations(t *testing.T) {
	testenv.NoLeaks(t)
	for _, op := range []string{"write", "write_imm", "read", "send", "atomic"} {
		for _, c := range []struct{ size, n, depth int }{{1, 300, 16}, {221, 40, 64}, {70001, 25, 2}} {
			t.Run(fmt.Sprintf("%s/%d", op, c.size), func(t *testing.T) {
				args := []string{"--op", op, "-s", fmt.Sprint(c.size), "-n", fmt.Sprint(c.n), "--depth", fmt.Sprint(c.depth), "--timeout", "30000"}
				s := startServer(t, args...)
				status, out, errOut := runClient(s, append(args, "--output-json", "-")...)
				if got := <-s.status; status != 0 || got != 0 {
					t.Fatalf("status %d and %d\n%s\n%s", status, got, errOut, s.errOut)
				}
				table, object, ok := strings.Cut(out, "{")
				var r report
				if err := json.Unmarshal([]byte("{"+object), &r); !ok || err != nil {
					t.Fatalf("no JSON in %q: %v", out, err)
				}
				size := c.size
				if op == "atomic" {
					size = 8
				}
				if r.Op != op || r.Bytes != size || !r.Verified || r.Latency == nil || r.Latency.Min <= 0 || r.Latency.Max < r.Latency.P99 || r.Bandwidth == nil || r.Bandwidth.Mpps <= 0 {
					t.Errorf("results %+v", r)
				}
				if !strings.Contains(table, "RDMA "+op+" latency, RC on soft0 (soft)") || !strings.Contains(table, "BW average[MB/sec]") {
					t.Errorf("printed %q", table)
				}
				if s.out.String() != "" {
					t.Errorf("the server printed %q", s.out.String())
				}
			})
		}
	}
}

// Several queue pairs and both directions, by every transport: fewer messages than lanes, and counts that the
// lanes and the credits do not divide.
func TestLanes(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tr := range transports {
		for _, op := range tr.ops[min(1, len(tr.ops)-1):] {
			if op == opTutorial {
				continue
			}
			for _, c := range []string{"-q 3 -n 2 --depth 2", "-b -n 101 --depth 7 -I 0", "-q 4 -b -n 203 --depth 5 -s 300"} {
				t.Run(fmt.Sprintf("%s/%s/%s", tr.name, op, c), func(t *testing.T) {
					args := append([]string{"--qp", tr.name, "--op", op, "--timeout", "30000", "-w", "1"}, strings.Fields(c)...)
					s := startServer(t, args...)
					status, out, errOut := runClient(s, args...)
					if got := <-s.status; status != 0 || got != 0 || !strings.Contains(out, "MsgRate[Mpps]") {
						t.Errorf("status %d and %d\n%s\n%s\n%s", status, got, out, errOut, s.errOut)
					}
				})
			}
		}
	}
}

// Every size has its row; a datagram's end at the MTU.
func TestAllSizes(t *testing.T) {
	testenv.NoLeaks(t)
	for args, want := range map[string]int{"--op write_imm": 23, "--op read": 23, "--op send --qp ud -m 1024": 10} {
		all := append(strings.Fields(args), "-a", "-n", "2", "-w", "1", "--timeout", "30000")
		s := startServer(t, all...)
		status, out, errOut := runClient(s, append(all, "--output-json", "-")...)
		if got := <-s.status; status != 0 || got != 0 {
			t.Fatalf("%s: status %d and %d\n%s\n%s", args, status, got, errOut, s.errOut)
		}
		table, object, _ := strings.Cut(out, "{")
		var r report
		if err := json.Unmarshal([]byte("{"+object), &r); err != nil {
			t.Fatal(err)
		}
		size := 1
		for _, row := range r.Sizes {
			if size *= 2; row.Bytes != size || row.Latency == nil || row.Bandwidth == nil || strings.Count(table, fmt.Sprintf("\n %-9d 2 ", size)) != 2 {
				t.Errorf("%s: row %+v, expected %d bytes in two tables\n%s", args, row, size, table)
			}
		}
		if len(r.Sizes) != want {
			t.Errorf("%s: %d sizes, expected %d", args, len(r.Sizes), want)
		}
	}
}

func TestEndsMustAgree(t *testing.T) {
	testenv.NoLeaks(t)
	s := startServer(t, "--op", "write", "-s", "64")
	status, _, errOut := runClient(s, "--op", "write", "-s", "128")
	if got := <-s.status; status != doca.StatusFailed || got != doca.StatusFailed {
		t.Errorf("status %d and %d", status, got)
	}
	for _, text := range []string{errOut, s.errOut.String()} {
		if !strings.Contains(text, "--size 64 ") || !strings.Contains(text, "--size 128 ") {
			t.Errorf("the message does not hold both: %s", text)
		}
	}
}

// What a peer that is no pingpong, or a hostile one, makes of a server.
func TestStrangers(t *testing.T) {
	testenv.NoLeaks(t)
	good := func(edit func(*hello)) string {
		p := &params{op: opWrite, qp: "rc", size: 64, pairs: 1, iterations: 1000, warmup: 100, depth: 128}
		h := hello{Program: program, Task: p.task()}
		edit(&h)
		b, _ := json.Marshal(h)
		return string(b) + "\n"
	}
	for name, c := range map[string]struct{ says, want string }{
		"ends at once":   {"", "the peer has ended"},
		"is of the web":  {"GET / HTTP/1.1\r\n\r\n", "no pingpong of this version"},
		"never ends":     {strings.Repeat("x", maxLine+1), "more than 16384 bytes"},
		"other version":  {good(func(h *hello) { h.Program = "gorun pingpong 3" }), `"gorun pingpong 3"`},
		"is a server":    {good(func(h *hello) { h.Server = true }), "both ends are servers"},
		"lies of memory": {good(func(*hello) {}) + `{"gid":[1],"endpoint":"AA==","length":3}` + "\n", "the peer's memory has 3 bytes"},
		"bad endpoint":   {good(func(*hello) {}) + `{"gid":[1],"endpoint":"AA==","length":3000,"pairs":[{}]}` + "\n", "endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, "--op", "write", "-s", "64")
			conn, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.says); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite() // the server may have hung up on what it read
			if status := <-s.status; status != doca.StatusFailed || !strings.Contains(s.errOut.String(), c.want) {
				t.Errorf("status %d, %s, want %q", status, s.errOut, c.want)
			}
		})
	}
}

// A peer that says nothing, or nothing more, is waited for as long as --timeout.
func TestSilence(t *testing.T) {
	testenv.NoLeaks(t)
	s := startServer(t, "--timeout", "50")
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if status := <-s.status; status != doca.StatusFailed || !strings.Contains(s.errOut.String(), "timeout") {
		t.Errorf("status %d: %s", status, s.errOut)
	}
}

func TestWatchdog(t *testing.T) {
	testenv.NoLeaks(t)
	w := newClock(context.Background(), 40*time.Millisecond)
	defer w.stop()
	if err := w.until(func() bool { return true }); err != nil {
		t.Errorf("what is there: %v", err)
	}
	if err := w.until(func() bool { return false }); err == nil || !strings.Contains(err.Error(), "nothing has come from the peer for 40ms") {
		t.Errorf("what never comes: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	status, _, errOut := runClient(&server{addr: l.Addr().String()})
	if status != doca.StatusFailed || !strings.Contains(errOut, "no server at "+l.Addr().String()+"; start one there with pingpong --listen") {
		t.Errorf("status %d: %s", status, errOut)
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args, environ []string
		want          string
	}{
		{[]string{"--qp", "ud"}, nil, "--qp ud needs --op send: the tutorial reads, which UD cannot"},
		{[]string{"--qp", "uc", "--op", "read"}, nil, "--qp uc cannot read: expected --op write or write_imm or send"},
		{[]string{"--qp", "tcp"}, nil, `found "tcp", expected rc, uc, ud, xrc, dc`},
		{[]string{"--op", "scan"}, nil, `found "scan", expected tutorial, write, write_imm, read, send or atomic`},
		{[]string{"-s", "0"}, nil, "found 0, expected 1 to 1073741824"},
		{[]string{"-m", "1000"}, nil, "found 1000, expected 256"},
		{[]string{"--listen", "a:1", "--connect", "b"}, nil, "found both --listen and --connect"},
		{[]string{"--peer", "ib_write_lat"}, nil, `found "ib_write_lat", expected ibv_rc_pingpong`},
		{[]string{"--peer", "ibv_rc_pingpong", "--op", "write"}, nil, "leave out --op and --qp"},
		{[]string{"--peer", "ibv_rc_pingpong", "-q", "2"}, nil, "leave out --op and --qp, and -a, -b and -q"},
		{[]string{"-a"}, nil, "-a, -b and -q are of a measurement: add --op write, write_imm"},
		{[]string{"-a", "--op", "atomic"}, nil, "--op atomic has the one size of 8 bytes"},
		{[]string{"-s", "8", "-a", "--op", "write"}, nil, "found -a beside -s"},
		{[]string{"-q", "0"}, nil, "found 0, expected 1 to 1024"},
		{[]string{"--connect", "a"}, []string{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=77"}, "the ends find each other through it"},
		{[]string{"-d", "mlx5_0", "--peer", "ibv_rc_pingpong"}, nil, `-d: no RDMA device "mlx5_0": there is soft0 (soft)`},
		{[]string{"--peer", "ibv_rc_pingpong"}, nil, "soft0 (soft) cannot reach ibv_rc_pingpong"},
	} {
		var out, errOut strings.Builder
		if status := run(context.Background(), c.args, c.environ, doca.Stdio{Out: &out, Err: &errOut}); status != 1 || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%q: status %d, %s, want %q", c.args, status, errOut.String(), c.want)
		}
	}
}

func TestInlineBeyondTheDevice(t *testing.T) {
	testenv.NoLeaks(t)
	args := []string{"-I", "65536", "--op", "write"}
	s := startServer(t, args...)
	status, _, errOut := runClient(s, args...)
	if got := <-s.status; status != doca.StatusFailed || got != doca.StatusFailed || !strings.Contains(errOut, "-I: found 65536, but soft0 sends") {
		t.Errorf("status %d and %d: %s", status, got, errOut)
	}
}

// The text is the one of pp_client_exch_dest in rdma-core's examples.
func TestIBVText(t *testing.T) {
	c := card{LID: 0xab, Pairs: []pair{{QPN: 0x123456}}, PSN: 0xfedcba}
	for i := range c.GID {
		c.GID[i] = byte(0xf0 + i)
	}
	text := "00ab:123456:fedcba:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
	if got := string(ibvLine(c)); got != text+"\x00" || len(got) != len(ibvText)+1 {
		t.Errorf("ibvLine: %q", got)
	}
	if got, err := parseIBV(text); err != nil || got.GID != c.GID || got.LID != c.LID || got.Pairs[0].QPN != c.Pairs[0].QPN || got.PSN != c.PSN {
		t.Errorf("parseIBV: %+v, %v", got, err)
	}
	for _, bad := range []string{"", text[:len(text)-1], text + "0", strings.Replace(text, ":", " ", 1), strings.Replace(text, "123456", "1234567", 1), strings.Replace(text, "f0f1", "g0f1", 1)} {
		if _, err := parseIBV(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
