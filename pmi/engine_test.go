package pmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi/pmitest"
)

const sayInit = "cmd=init pmi_version=1 pmi_subversion=1\n"

// engines makes those of a job with rank r on hostOf[r], all ranks initialized.
func engines(hostOf ...int) []*Engine {
	all := make([]*Engine, hostsOf(hostOf))
	for h := range all {
		var ranks []int
		for r, host := range hostOf {
			if host == h {
				ranks = append(ranks, r)
			}
		}
		all[h] = NewEngine(EngineConfig{KVSName: "job", Size: len(hostOf), Ranks: ranks})
		for _, r := range ranks {
			all[h].Receive(r, []byte(sayInit))
		}
	}
	return all
}

// fenceOf is the fence among events.
func fenceOf(t *testing.T, events []Event) Fence {
	t.Helper()
	for _, ev := range events {
		if f, ok := ev.(Fence); ok {
			return f
		}
	}
	t.Fatalf("no fence in %+v", events)
	return Fence{}
}

// violationOf is the one violation among events.
func violationOf(t *testing.T, events []Event) *RankError {
	t.Helper()
	var found *RankError
	for _, ev := range events {
		if v, ok := ev.(Violation); ok {
			if found != nil {
				t.Errorf("a second violation: %v", v.Err)
			}
			if !errors.As(v.Err, &found) {
				t.Fatalf("violation of %T", v.Err)
			}
			if v.Rank != found.Rank {
				t.Errorf("violation of rank %d says %v", v.Rank, v.Err)
			}
		}
	}
	if found == nil {
		t.Fatalf("no violation in %+v", events)
	}
	return found
}

func TestHostsThatDisagree(t *testing.T) {
	cases := map[string]struct {
		other func(e *Engine) []Event // what rank 1 on the other host does
		want  string
	}{
		"cards against barrier": {func(e *Engine) []Event { return e.Receive(1, []byte("cmd=gorun_allgather size=0\n")) },
			"host 1 entered with gorun_allgather, this one with barrier_in"},
		"finalized": {func(e *Engine) []Event { return e.Receive(1, []byte("cmd=finalize\n")) },
			"host 1 takes part in no more fences: rank 1: it has finalized"},
		"gone": {func(e *Engine) []Event { return e.Disconnect(1) },
			"host 1 takes part in no more fences: rank 1: its connection ended without finalize"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			es := engines(0, 1)
			f0 := fenceOf(t, es[0].Receive(0, []byte("cmd=barrier_in\n")))
			other := c.other(es[1])
			var all [][]byte
			all = append(all, f0.Contribution, fenceOf(t, other).Contribution)
			v := violationOf(t, es[0].FenceDone(1, all))
			if v.Kind != ErrFence || !strings.Contains(v.Error(), c.want) {
				t.Errorf("got %v, want %q", v, c.want)
			}
			for _, ev := range es[1].FenceDone(1, all) {
				if r, ok := ev.(Reply); ok && bytes.Contains(r.Data, []byte("rc=0")) {
					t.Errorf("the other host is told %q", r.Data)
				}
			}
		})
	}
}

func TestBothHostsClose(t *testing.T) {
	es := engines(0, 1)
	var all [][]byte
	for r, e := range es {
		f := fenceOf(t, e.Receive(r, []byte("cmd=finalize\n")))
		if !f.Closing {
			t.Errorf("fence of host %d is not the closing one", r)
		}
		all = append(all, f.Contribution)
	}
	for r, e := range es {
		if events := e.FenceDone(1, all); len(events) != 0 {
			t.Errorf("host %d: %+v", r, events)
		}
		if events := e.Disconnect(r); len(events) != 0 {
			t.Errorf("host %d: %+v", r, events)
		}
	}
}

func TestDamagedContribution(t *testing.T) {
	good := fenceOf(t, engines(0, 1)[1].Receive(1, []byte("cmd=gorun_allgather size=1\nx"))).Contribution
	cases := map[string][]byte{
		"nothing": {}, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0), "another type": {0xc0},
		"cards of others": fenceOf(t, engines(0, 1)[0].Receive(0, []byte("cmd=gorun_allgather size=1\nx"))).Contribution,
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := engines(0, 1)[0]
			f := fenceOf(t, e.Receive(0, []byte("cmd=gorun_allgather size=1\nx")))
			v := violationOf(t, e.FenceDone(1, [][]byte{f.Contribution, c}))
			if v.Kind != ErrFence || !strings.Contains(v.Error(), "host 1: contribution of") {
				t.Errorf("got %v, want host 1 named", v)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		e := engines(0, 1)[0]
		f := fenceOf(t, e.Receive(0, []byte("cmd=gorun_allgather size=1\nx")))
		if v := violationOf(t, e.FenceDone(1, [][]byte{f.Contribution})); !strings.Contains(v.Error(), "cards of 1 ranks, want 2") {
			t.Errorf("got %v", v)
		}
	})
}

func TestFenceFailedTellsReaders(t *testing.T) {
	e := engines(0, 0, 1)[0]
	e.Receive(0, []byte("cmd=gorun_allgather size=0\n"))
	fenceOf(t, e.Receive(1, []byte("cmd=gorun_allgather size=0\n")))
	lost := errors.New("host b lost")
	events := e.FenceFailed(1, lost)
	if v := violationOf(t, events); !errors.Is(v, lost) || !errors.Is(v, ErrFence) || !strings.Contains(v.Error(), "host b lost") {
		t.Errorf("got %v", v)
	}
	told := 0
	for _, ev := range events {
		if r, ok := ev.(Reply); ok && bytes.HasPrefix(r.Data, []byte("cmd=gorun_allgather_result rc=-1")) && bytes.Contains(r.Data, []byte("host b lost")) {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d ranks are told, want 2: %+v", told, events)
	}
	if again := e.FenceFailed(1, errors.New("x")); len(again) != 0 {
		t.Errorf("a second failure: %+v", again)
	}
}

func TestLimits(t *testing.T) {
	t.Run("line", func(t *testing.T) {
		e := engines(0)[0]
		chunk := bytes.Repeat([]byte("x"), 1000)
		for sent := len(chunk); ; sent += len(chunk) {
			events := e.Receive(0, chunk)
			if sent < LineMax {
				if len(events) != 0 {
					t.Fatalf("after %d bytes: %+v", sent, events)
				}
				continue
			}
			if v := violationOf(t, events); v.Kind != ErrLine || !strings.Contains(v.Error(), fmt.Sprint(LineMax)) {
				t.Errorf("got %v", v)
			}
			break
		}
		for range 100 {
			if events := e.Receive(0, chunk); len(events) != 0 {
				t.Fatalf("after the end: %+v", events)
			}
		}
		if p := e.peers[0]; p.partial != nil || p.card != nil {
			t.Error("bytes are kept after the end")
		}
	})
	t.Run("value", func(t *testing.T) {
		e := engines(0)[0]
		for _, n := range []int{ValLenMax, ValLenMax + 1} {
			got := e.Receive(0, []byte("cmd=put kvsname=job key=big value="+strings.Repeat("v", n)+"\n"))[0].(Reply)
			want := "rc=0"
			if n > ValLenMax {
				want = "rc=-1 msg=rank_0:_value_of_key_big_has_1025_bytes_limit_1024"
			}
			if !strings.Contains(string(got.Data), want) {
				t.Errorf("value of %d bytes: %q, want %q", n, got.Data, want)
			}
		}
	})
	t.Run("store", func(t *testing.T) {
		e := engines(0)[0]
		e.store.bytes = StoreMax - 100
		got := e.Receive(0, []byte("cmd=put kvsname=job key=last value="+strings.Repeat("v", 200)+"\n"))[0].(Reply)
		if !strings.Contains(string(got.Data), "rc=-1 msg=rank_0:_store_with_key_last") {
			t.Errorf("got %q", got.Data)
		}
	})
	t.Run("the same key for ever", func(t *testing.T) {
		e := engines(0)[0]
		put := []byte("cmd=put kvsname=job key=k value=" + strings.Repeat("v", 1000) + "\n")
		for epoch := uint64(1); epoch < 50; epoch++ {
			e.Receive(0, put)
			e.Receive(0, put)
			f := fenceOf(t, e.Receive(0, []byte("cmd=barrier_in\n")))
			e.FenceDone(epoch, [][]byte{f.Contribution})
		}
		if e.store.bytes != 1001 {
			t.Errorf("%d bytes are counted, want 1001", e.store.bytes)
		}
	})
	for name, line := range map[string]string{"spawn of many lines": "a=b\n", "spawn of many bytes": "a=" + strings.Repeat("b", LineMax-3) + "\n"} {
		t.Run(name, func(t *testing.T) {
			e := engines(0)[0]
			e.Receive(0, []byte("mcmd=spawn\n"))
			for range spawnLinesMax + 1 {
				if events := e.Receive(0, []byte(line)); len(events) > 0 {
					if v := violationOf(t, events); v.Kind != ErrLimit || !strings.Contains(v.Error(), "mcmd=spawn") {
						t.Errorf("got %v", v)
					}
					if e.peers[0].spawn != nil {
						t.Error("the spawn is kept after the end")
					}
					return
				}
			}
			t.Error("no violation")
		})
	}
	t.Run("codes of a spawn", func(t *testing.T) {
		for _, n := range []int{1, 400, 600} {
			e := engines(0)[0]
			e.Receive(0, []byte("mcmd=spawn\nexecname=x\nnprocs=1\nendcmd\n"))
			got := e.SpawnDone(0, SpawnAnswer{Codes: make([]int, n)})[0].(Reply)
			switch ok := bytes.Contains(got.Data, []byte("rc=0")); {
			case len(got.Data) > 1024:
				t.Errorf("%d codes in %d bytes, more than MPICH's client reads", n, len(got.Data))
			case ok && bytes.Count(got.Data, []byte(",")) != n-1, ok != (n < 500):
				t.Errorf("%d codes: %.80q", n, got.Data)
			}
		}
	})
}

// What comes for a rank that has gone meanwhile is dropped.
func TestAnswerToTheGone(t *testing.T) {
	e := engines(0, 0)[0]
	if ev := e.Receive(0, []byte("mcmd=spawn\nexecname=x\nnprocs=1\nendcmd\n")); len(ev) != 1 {
		t.Fatalf("spawn: %+v", ev)
	}
	if ev := e.Receive(1, []byte("cmd=lookup_name service=s\n")); len(ev) != 1 {
		t.Fatalf("lookup: %+v", ev)
	}
	e.Disconnect(0)
	e.Disconnect(1)
	if ev := e.SpawnDone(0, SpawnAnswer{}); len(ev) != 0 {
		t.Errorf("spawn is answered: %+v", ev)
	}
	if ev := e.NameDone(1, NameAnswer{}); len(ev) != 0 {
		t.Errorf("lookup is answered: %+v", ev)
	}
}

func TestInitAck(t *testing.T) {
	if rank, err := InitAck([]byte("cmd=initack pmiid=3\n")); rank != 3 || err != nil {
		t.Errorf("got %d, %v", rank, err)
	}
	for _, bad := range []string{"cmd=init pmi_version=1\n", "cmd=initack\n", "cmd=initack pmiid=-1\n", "cmd=initack pmiid=x\n", "GET / HTTP/1.1\n"} {
		if rank, err := InitAck([]byte(bad)); err == nil {
			t.Errorf("InitAck(%q): rank %d, want an error", bad, rank)
		}
	}
}

func TestJoinedAndFinalized(t *testing.T) {
	e := NewEngine(EngineConfig{Size: 1, Ranks: []int{0}})
	check := func(when string, joined, finalized bool) {
		t.Helper()
		if e.Joined(0) != joined || e.Finalized(0) != finalized {
			t.Errorf("%s: joined %v finalized %v, want %v %v", when, e.Joined(0), e.Finalized(0), joined, finalized)
		}
	}
	check("fresh", false, false)
	e.Receive(0, []byte(sayInit))
	check("init", true, false)
	e.Receive(0, []byte("cmd=finalize\n"))
	check("finalize", true, true)
	e.Disconnect(0)
	check("gone", true, true)
}

func TestStores(t *testing.T) {
	testenv.NoLeaks(t)
	stores := pmitest.Stores(2)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { _, err := stores[0].Fence(ctx, 1, nil); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("fence without the other host: %v, want context.Canceled", err)
	}
	go func() { _, err := stores[0].Fence(context.Background(), 2, []byte("a")); done <- err }()
	stores[1].Close()
	if err := <-done; !errors.Is(err, pmitest.ErrClosed) {
		t.Errorf("fence with a host that closes: %v, want ErrClosed", err)
	}
	if _, err := stores[0].Fence(context.Background(), 3, nil); !errors.Is(err, pmitest.ErrClosed) {
		t.Errorf("fence after that: %v, want ErrClosed", err)
	}
}

// FuzzEngine lets ranks say anything. The first byte of each piece is the rank
// and what happens; the rest up to 0xff is what it sends.
func FuzzEngine(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var script []byte
		for line := range strings.Lines(string(text)) {
			switch {
			case len(line) > 3 && line[1] == '>':
				data := strings.TrimSuffix(line[3:], "\\\n")
				script = append(append(append(script, line[0]-'0'), data...), 0xff)
			case len(line) > 3 && line[1] == ';':
				script = append(append(append(script, line[0]-'0'), framed(strings.TrimSuffix(line[3:], "\n"))...), 0xff)
			case len(line) > 2 && line[1] == '.':
				script = append(script, 0x80|(line[0]-'0'), 0xff)
			}
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		const size = 3
		e := NewEngine(EngineConfig{KVSName: "kvs_0", Size: size, Ranks: []int{0, 1, 2}})
		sent, told := 0, 0
		var names names
		var check func(events []Event)
		check = func(events []Event) {
			for _, ev := range events {
				switch ev := ev.(type) {
				case Reply:
					if ev.Rank < 0 || ev.Rank >= size || len(ev.Data) == 0 {
						t.Fatalf("reply %+v", ev)
					}
					told += len(ev.Data)
					if parts := said(ev.Data); !bytes.HasPrefix(parts[len(parts)-1], []byte("cmd=")) && !bytes.HasPrefix(ev.Data, []byte("cmd=gorun_")) {
						// PMI-2, whose answers may follow that to its first line.
						for _, part := range parts {
							if m, err := ParseFrame(part[min(lengthDigits, len(part)):]); string(part) != initAnswer2 && (err != nil || !strings.HasSuffix(m.Cmd(), "-response") || m.String() == "") {
								t.Fatalf("reply %q of %q: %v", part, ev.Data, err)
							}
						}
						break
					}
					head, body, _ := bytes.Cut(ev.Data, []byte("\n"))
					m, err := ParseLine(head)
					if err != nil {
						t.Fatalf("reply %q: %v", head, err)
					}
					if n, ok := m.Int("size"); ok && m.Cmd() == "gorun_allgather_result" && n > len(body) {
						t.Fatalf("reply %q has %d bytes", head, len(body))
					}
				case Fence:
					if ev.Closing {
						t.Fatal("closing fence of a job with one host")
					}
					// Now and then the store fails.
					if sent%7 == 6 {
						check(e.FenceFailed(ev.Epoch, errors.New("store")))
					} else {
						check(e.FenceDone(ev.Epoch, [][]byte{ev.Contribution}))
					}
				case Violation:
					var re *RankError
					if !errors.As(ev.Err, &re) || re.Rank != ev.Rank || strings.ContainsRune(ev.Err.Error(), '\n') || len(ev.Err.Error()) > 1000 {
						t.Fatalf("violation %v", ev.Err)
					}
				case Spawn:
					if len(ev.Apps) == 0 {
						t.Fatalf("spawn of nothing: %+v", ev)
					}
					for _, app := range ev.Apps {
						if app.N < 1 || app.Program == "" || strings.ContainsAny(app.Program, "\x00") {
							t.Fatalf("spawn of %+v", app)
						}
					}
					// Sometimes it is answered, else the rank waits on.
					switch sent % 3 {
					case 0:
						check(e.SpawnDone(ev.Rank, SpawnAnswer{Err: "no\nsuch program"}))
					case 1:
						check(e.SpawnDone(ev.Rank, SpawnAnswer{Codes: make([]int, len(ev.Apps))}))
					}
				case Name:
					check(e.NameDone(ev.Rank, names.do(ev.Query)))
				case Abort:
				case Finalized:
				default:
					t.Fatalf("event %T", ev)
				}
			}
		}
		for piece := range bytes.SplitSeq(script, []byte{0xff}) {
			if len(piece) == 0 {
				continue
			}
			rank := int(piece[0]&0x7f) % size
			if piece[0]&0x80 != 0 {
				check(e.Disconnect(rank))
				continue
			}
			sent += len(piece)
			check(e.Receive(rank, piece[1:]))
		}
		kept := e.store.bytes + e.attributes.bytes
		for _, p := range e.peers {
			kept += len(p.partial)
			for _, m := range p.later {
				kept += m.size()
			}
			if cap(p.card) > CardMax || len(p.partial) > FrameMax || p.wire == (pmi1{}) && len(p.partial) > LineMax {
				t.Fatalf("rank %d: %d bytes of a card, %d of a line", p.rank, cap(p.card), len(p.partial))
			}
		}
		if kept > sent+KVSNameMax {
			t.Fatalf("%d bytes are kept of %d sent", kept, sent)
		}
		for r := range size {
			check(e.Disconnect(r))
		}
		if e.inside != 0 {
			t.Fatalf("%d ranks in a fence after all have gone", e.inside)
		}
	})
}

func BenchmarkAllGatherEngine(b *testing.B) {
	const size = 300
	hostOf := make([]int, size)
	card := append([]byte("cmd=gorun_allgather size=500\n"), make([]byte, 500)...)
	e := engines(hostOf...)[0]
	b.ReportAllocs()
	for b.Loop() {
		for r := range size {
			for _, ev := range e.Receive(r, card) {
				if f, ok := ev.(Fence); ok {
					if got := len(e.FenceDone(f.Epoch, [][]byte{f.Contribution})); got != size {
						b.Fatalf("%d replies", got)
					}
				}
			}
		}
	}
}

// A launcher gives its engine what ranks say, and does what the events tell.
func ExampleEngine() {
	e := NewEngine(EngineConfig{KVSName: "job-7", Size: 1, Ranks: []int{0}, Mapping: Mapping([]int{0})})
	store := pmitest.Stores(1)[0]
	defer store.Close()
	events := e.Receive(0, []byte("cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n"))
	for len(events) > 0 {
		ev := events[0]
		events = events[1:]
		switch ev := ev.(type) {
		case Reply:
			fmt.Printf("to rank %d: %s", ev.Rank, ev.Data)
		case Fence:
			all, err := store.Fence(context.Background(), ev.Epoch, ev.Contribution)
			if err != nil {
				events = append(events, e.FenceFailed(ev.Epoch, err)...)
			} else {
				events = append(events, e.FenceDone(ev.Epoch, all)...)
			}
		}
	}
	// Output:
	// to rank 0: cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
	// to rank 0: cmd=barrier_out
}

// A secure job serves those alone that say they encrypt, in either version.
func TestSecureEngine(t *testing.T) {
	for hello, refused := range map[string]bool{
		"cmd=init pmi_version=1 pmi_subversion=1\n":                true,
		"cmd=init pmi_version=1 pmi_subversion=1 gorun_secure=0\n": true,
		"cmd=init pmi_version=2 pmi_subversion=0\n":                true,
		"cmd=init pmi_version=1 pmi_subversion=1 gorun_secure=1\n": false,
	} {
		events := NewEngine(EngineConfig{Size: 1, Ranks: []int{0}, Secure: true}).Receive(0, []byte(hello))
		if refused {
			if v := violationOf(t, events); v.Kind != ErrSecure {
				t.Errorf("%q: %v, want %v", hello, v, ErrSecure)
			}
		} else if len(events) != 1 || !bytes.Contains(events[0].(Reply).Data, []byte("rc=0")) {
			t.Errorf("%q: %+v, want an answer", hello, events)
		}
		for _, ev := range NewEngine(EngineConfig{Size: 1, Ranks: []int{0}}).Receive(0, []byte(hello)) {
			if _, is := ev.(Violation); is {
				t.Errorf("%q: %+v where nothing is asked for", hello, ev)
			}
		}
	}
}
