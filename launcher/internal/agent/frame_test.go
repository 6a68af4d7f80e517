package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

func TestFramesRoundTrip(t *testing.T) {
	orders := []order{
		{Setup: &setup{host.Spec{Job: "j", Host: "a", Hosts: 2, NP: 4, Ranks: []host.RankSpec{{Rank: 1, App: 1}, {Rank: 3, CPUs: []int{0, 64}}}, Apps: []host.AppSpec{{Argv: []string{"p", ""}, Env: []string{"A=1"}, Dir: "/", NP: 3}, {NP: 1}}, Output: host.OutputSpec{Stamp: true}, Grace: time.Second, Stdin: host.StdinPump}, []byte{1, 0, 255}, Way{Apart: true, Toward: "10.0.0.1", Remote: true}, time.Minute, 4711}},
		{Peers: map[int]string{0: "127.0.0.1:1", 12: "127.0.0.1:2"}},
		{Begin: &begin{"127.0.0.1:1"}},
		{Command: &host.Command{Kind: host.End, Signal: syscall.SIGINT}},
		{Command: &host.Command{Kind: host.Input, Data: []byte("\x00\xff"), Last: true}},
	}
	var b []byte
	for _, o := range orders {
		var err error
		if b, err = appendFrame(b, o); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReader(bytes.NewReader(b))
	for i, want := range orders {
		var got order
		if err := readFrame(r, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("frame %d: got %+v, %v, want %+v", i, got, err, want)
		}
	}
	if err := readFrame(r, &order{}); err != io.EOF {
		t.Errorf("at the end: got %v, want io.EOF", err)
	}
	e := report{Event: &host.Event{Kind: host.Ended, Rank: 3, Status: 139, Signal: syscall.SIGSEGV, Tails: map[int][]string{3: {"a", "b"}}}}
	b, err := appendFrame(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := readFrame(bufio.NewReader(bytes.NewReader(b)), &got); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("event: got %+v, %v, want %+v", got.Event, err, e.Event)
	}
}

// largeJob is what gorun writes to a host of a job of many, 64 ranks each: its work, and the addresses that it needs.
func largeJob(hosts int) map[string]order {
	space := &link.Space{Name: "gorun_0123456789abcdef", NodeOf: make(link.Numbers, 64*hosts), AppOf: make(link.Numbers, 64*hosts), Universe: 64 * hosts}
	for i := range hosts {
		space.Nodes = append(space.Nodes, fmt.Sprintf("node%05d", i))
	}
	for r := range space.NodeOf {
		space.NodeOf[r] = uint32(r / 64)
	}
	setup := order{Setup: &setup{Spec: host.Spec{Job: "0123456789abcdef", Host: "node1234", Hosts: hosts, NP: 64 * hosts, PMIx: space,
		Apps: []host.AppSpec{{Argv: []string{"./program"}, Dir: "/home/user", NP: 64 * hosts}}}, Key: make([]byte, KeySize)}}
	for i := range 64 {
		setup.Setup.Spec.Apps[0].Env = append(setup.Setup.Spec.Apps[0].Env, fmt.Sprintf("VARIABLE_%d=%048d", i, i))
		setup.Setup.Spec.Ranks = append(setup.Setup.Spec.Ranks, host.RankSpec{Rank: 64*hosts - 64 + i})
	}
	peers := order{Peers: map[int]string{}}
	for i := range 41 {
		peers.Peers[hosts-41+i] = fmt.Sprintf("10.20.30.%d:45678", 100+i)
	}
	return map[string]order{"setup": setup, "peers": peers}
}

// What gorun writes to a host grows by a few digits only when the job does.
func TestFramesDoNotGrow(t *testing.T) {
	large := largeJob(10_000)
	for name, o := range largeJob(100) {
		small, err := appendFrame(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := appendFrame(nil, large[name])
		if err != nil {
			t.Fatal(err)
		}
		// A number takes 1 to 5 bytes. There is one for each rank of the host, and for each address.
		if more := len(frame) - len(small); more > 4*64+40 {
			t.Errorf("%s: %d bytes of 100 hosts, %d of 10,000: want at most 300 more", name, len(small), len(frame))
		}
	}
}

// BenchmarkFrames writes them.
func BenchmarkFrames(b *testing.B) {
	for name, o := range largeJob(10_000) {
		b.Run(name, func(b *testing.B) {
			var frame []byte
			for b.Loop() {
				frame, _ = appendFrame(frame[:0], o)
			}
			b.ReportMetric(float64(len(frame)), "B/frame")
		})
	}
}

func TestDamagedFrames(t *testing.T) {
	for _, c := range []struct{ name, stream, want string }{
		{"cut in its length", "\x00\x00", "unexpected EOF"},
		{"cut in its body", "\x00\x00\x00\x05ab", "unexpected EOF"},
		{"longer than allowed", "\xff\xff\xff\xff", "no stream of an agent"},
		{"no msgpack", "\x00\x00\x00\x01\xc1", "frame of 1 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := readFrame(bufio.NewReader(strings.NewReader(c.stream)), &order{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzFrame(f *testing.F) {
	for _, v := range []any{order{Peers: map[int]string{0: "a"}}, order{Command: &host.Command{Kind: host.Kill}}, report{Address: "x"}} {
		b, err := appendFrame(nil, v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		var o order
		if err := readFrame(r, &o); err == nil {
			again, err := appendFrame(nil, o)
			if err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			var p order
			if err := readFrame(bufio.NewReader(bytes.NewReader(again)), &p); err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
		}
		var rep report
		_ = readFrame(bufio.NewReader(bytes.NewReader(b)), &rep)
	})
}

// half is a writer that fails.
type half struct{}

func (half) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestOutboxDiscardsOnABrokenStream(t *testing.T) {
	testenv.NoLeaks(t)
	o := newOutbox(half{}, false, nil)
	_ = o.put(report{Address: "x"})
	<-o.done
	if err := o.put(report{Address: "y"}); err == nil {
		t.Errorf("put after the failure: got no error")
	}
	o.close()
}

// talk runs an agent in this process: what it is told, and what it reports.
type talk struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *bufio.Reader
	result chan error
}

func newTalk(t *testing.T, ctx context.Context) *talk {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	k := &talk{t, inW, bufio.NewReader(outR), make(chan error, 1)}
	go func() {
		err := Main(ctx, inR, outW, Process{}) // of one host, which listens to nobody
		outW.Close()
		k.result <- err
	}()
	if pid, err := readGreeting(k.out, streamVersion, func(string) {}, none); err != nil || pid != os.Getpid() {
		t.Fatalf("greeting: pid %d, %v", pid, err)
	}
	return k
}

func (k *talk) say(o order) {
	k.t.Helper()
	b, err := appendFrame(nil, o)
	if err == nil {
		_, err = k.in.Write(b)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// hear reads reports up to an event of a kind.
func (k *talk) hear(kind host.EventKind) (e host.Event) {
	k.t.Helper()
	for {
		var r report
		if err := readFrame(k.out, &r); err != nil {
			k.t.Fatalf("waiting for event %d: %v", kind, err)
		}
		if r.Event != nil && r.Event.Kind == kind {
			return *r.Event
		}
	}
}

// hearPong reads reports up to the answer to a ping.
func (k *talk) hearPong() {
	k.t.Helper()
	for {
		var r report
		if err := readFrame(k.out, &r); err != nil {
			k.t.Fatalf("waiting for the answer to a ping: %v", err)
		}
		if r.Pong {
			return
		}
	}
}

// drain reads whatever the agent says from now on.
func (k *talk) drain() { go io.Copy(io.Discard, k.out) }

// one is a job of one rank, whose number no other run of these tests has: the guardian of one would kill the ranks of the other.
func one(argv ...string) order {
	return order{Setup: &setup{Spec: host.Spec{Job: fmt.Sprintf("%016x", os.Getpid()), Host: "a", Hosts: 1, NP: 1, Ranks: []host.RankSpec{{}}, Apps: []host.AppSpec{{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}, NP: 1}}, Grace: time.Second}}}
}

// An agent runs its work, and says what machine it runs on, before that or instead of it.
func TestAgent(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct{ probe, work bool }{{false, true}, {true, true}, {true, false}} {
		k := newTalk(t, context.Background())
		if c.probe {
			k.say(order{Probe: true})
			var r report
			if err := readFrame(k.out, &r); err != nil || r.Machine == nil || len(r.Machine.CPUs) == 0 || r.Machine.Allowed.Len() == 0 || r.Machine.Usable() != topo.CPUs() {
				t.Fatalf("got %+v, %v", r.Machine, err)
			}
		}
		if c.work {
			k.say(one("sh", "-c", "exit 3"))
			k.say(order{Begin: &begin{"-"}})
			if e := k.hear(host.Ended); e.Status != 3 {
				t.Errorf("status: got %d, want 3", e.Status)
			}
			k.hear(host.Done)
		}
		k.in.Close()
		if err := <-k.result; err != nil {
			t.Error(err)
		}
	}
}

func TestAgentStreamEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(k *talk)
	}{
		{"end of file", func(k *talk) { k.in.Close() }},
		{"an error", func(k *talk) { k.in.CloseWithError(errors.New("broken")) }},
		{"nonsense", func(k *talk) {
			b := binary.BigEndian.AppendUint32(nil, 1<<31)
			k.in.Write(b)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			k := newTalk(t, context.Background())
			k.say(one("sleep", "100"))
			k.say(order{Begin: &begin{"-"}})
			k.hear(host.Started)
			c.end(k)
			if e := k.hear(host.Ended); e.Signal != syscall.SIGKILL {
				t.Errorf("the rank ended with %v, want KILL", e.Signal)
			}
			k.hear(host.Done)
			if err := <-k.result; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAgentIsStoppedBeforeItStarts(t *testing.T) {
	testenv.NoLeaks(t)
	k := newTalk(t, context.Background())
	k.say(one("sleep", "100"))
	k.say(order{Command: &host.Command{Kind: host.End, Signal: syscall.SIGTERM}})
	k.hear(host.Done)
	k.in.Close()
	if err := <-k.result; err != nil {
		t.Error(err)
	}
}

// An agent that hears no more of its controller, whose stream stays open, ends its ranks;
// one that does, or whose job is suspended, does not.
func TestAgentWhoseLeaseLapses(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	testenv.NoLeaks(t)
	k := newTalk(t, testenv.Deadline(t, time.Minute))
	o := one("sleep", "100")
	const limit = time.Second // the guardian kills this very process, had it no CPU for as long
	o.Setup.Lease = limit
	k.say(o)
	k.say(order{Begin: &begin{"-"}})
	k.hear(host.Started)
	for began := time.Now(); time.Since(began) < limit*5/4; {
		k.say(order{Ping: true})
		k.hearPong()
		k.hear(host.Turned)
	}
	k.drain()
	began := time.Now()
	if err := <-k.result; err == nil || !strings.Contains(err.Error(), "heard nothing of gorun for 1s") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took < limit*5/6 {
		t.Errorf("ended after %v, before its lease was over", took)
	}
	k.in.Close()
}

// A host that asks for pieces of a program without taking them fills no memory here: it is lost.
func TestAHostThatAsksForManyPieces(t *testing.T) {
	testenv.NoLeaks(t)
	said := greeting(streamVersion)
	for i := range int64(3) {
		var err error
		if said, err = appendFrame(said, report{Want: &want{0, i * pieceMost}}); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "said")
	if err := os.WriteFile(file, said, 0o600); err != nil {
		t.Fatal(err)
	}
	l := shell(t, "cat "+file+"; exec sleep 1000", nil)
	reads, lost := 0, make(chan error, 1)
	l.Begin(host.Spec{}, nil, Way{}, 0, 0, Told{
		Program: func(_ int, _ int64, into []byte) (int, error) { reads++; return len(into), nil },
		Sent:    func(int) { t.Error("a piece was sent, which nobody has read") },
		Lost:    func(err error) { lost <- err },
	})
	if err := <-lost; err == nil || !strings.Contains(err.Error(), "found a second request for a piece") {
		t.Errorf("got %v", err)
	}
	l.Kill()
	l.Close()
	if reads > 1 {
		t.Errorf("%d pieces were read, want 1", reads)
	}
}

func TestAgentWithoutAJob(t *testing.T) {
	testenv.NoLeaks(t)
	for _, stream := range []string{"", "hello, are you there?", "\x00\x00\x00\x01\x80"} {
		if err := Main(context.Background(), strings.NewReader(stream), io.Discard, Process{}); err == nil {
			t.Errorf("%q: got no error", stream)
		}
	}
}
