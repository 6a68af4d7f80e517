package group

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func seeds(f *testing.F) {
	config := config(100, "float", "sum", Auto)
	for _, s := range []struct {
		h       header
		payload []byte
	}{
		{header{Kind: kindHello, Hello: &hello{Magic: magic, Version: protocolVersion, Kind: Daemon, ID: newID(), Label: "host:1", Config: config}}, nil},
		{header{Kind: kindAnswer, Answer: &answer{refused, "full"}}, nil},
		{header{Kind: kindRecord, Records: []record{{ID: "a", Version: 3, Kind: Direct, Place: Place{IPs: []string{"10.0.0.1"}, Port: 1}, Open: []string{"b:2"}, Joined: []string{"c"}}}}, nil},
		{header{Kind: kindStart, Start: &start{Members: []string{"a", "b"}, Contributions: 2, Algorithm: Ring}}, nil},
		{header{Kind: kindData, Op: 7, Step: 2}, []byte("payload")},
		{header{Kind: kindBye, Text: "interrupted"}, nil},
	} {
		var b bytes.Buffer
		if err := writeFrame(&b, &s.h, s.payload); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
}

// Whatever bytes come, a reader ends with a frame or an error, and a frame that was read is
// read again from what it is written as.
func FuzzFrame(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			h, n, err := readHead(r, 1000)
			if err != nil {
				return
			}
			payload := make([]byte, n)
			if _, err := io.ReadFull(r, payload); err != nil {
				return
			}
			var again bytes.Buffer
			if err := writeFrame(&again, &h, payload); err != nil {
				t.Fatalf("%+v cannot be written: %v", h, err)
			}
			h2, n2, err := readHead(&again, 1000)
			if err != nil || n2 != n || !reflect.DeepEqual(tidy(h), tidy(h2)) {
				t.Fatalf("%+v, %d bytes; again %+v, %d bytes, %v", h, n, h2, n2, err)
			}
		}
	})
}

// tidy makes an empty list of records none: it is not written.
func tidy(h header) header {
	if len(h.Records) == 0 {
		h.Records = nil
	}
	return h
}

// Whatever a participant tells of others, a view stays bounded and can be asked.
func FuzzView(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		v := view{self: "self", records: map[string]*record{"self": {ID: "self", Kind: Daemon}}}
		r := bytes.NewReader(b)
		for {
			h, _, err := readHead(r, 0)
			if err != nil {
				break
			}
			for _, record := range h.Records {
				if _, err := v.learn(record); err != nil {
					return
				}
			}
		}
		if own := v.records["self"]; own == nil || own.Version != 0 {
			t.Fatal("a record of this participant itself was taken from another one")
		}
		_, _, _ = v.missing(), v.tooMany(), v.contributions()
		if len(v.order()) != len(v.records) {
			t.Fatalf("%d members in order, %d records", len(v.order()), len(v.records))
		}
	})
}

// A mailbox takes what is due, once, and refuses all else.
func TestMailboxRefusesWhatIsNotDue(t *testing.T) {
	m := newMailbox()
	for op := range uint64(3) {
		m.finish(op)
	}
	m.finish(4)
	for _, c := range []struct {
		op uint64
		ok bool
	}{{2, false}, {3, true}, {3, false}, {4, false}, {5, true}, {3 + window - 1, true}, {3 + window, false}} {
		if err := m.put(slot{"a", c.op, 0}, nil); (err == nil) != c.ok {
			t.Errorf("operation %d: %v, want accepted: %v", c.op, err, c.ok)
		}
	}
}

// What is awaited long is told, ever more rarely; a context ends the wait.
func TestLongWaitsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		note := func(d time.Duration) { told = append(told, d) }
		from := make(chan int)
		go func() {
			time.Sleep(40 * time.Second)
			from <- 7
		}()
		v, ok, err := await(t.Context(), from, note)
		if want := []time.Duration{5 * time.Second, 15 * time.Second, 35 * time.Second}; v != 7 || !ok || err != nil || !reflect.DeepEqual(told, want) {
			t.Errorf("%d, %v, %v, told at %v; want 7, true, nil, %v", v, ok, err, told, want)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errDone)
		if _, _, err := await(ctx, from, note); !errors.Is(err, errDone) {
			t.Errorf("a wait that was ended: %v", err)
		}
	})
}

// A group whose size nobody has told starts when nothing has changed for a while.
func TestGroupWaitsForThoseStartedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := record{ID: "self", Kind: Daemon}
		g := &Group{kick: make(chan struct{}, 1), changed: time.Now(), view: view{self: "self", records: map[string]*record{"self": &own}}}
		time.Sleep(lull / 2)
		if g.quiet() {
			t.Error("it starts at once")
		}
		<-g.kick
		if !g.quiet() || time.Since(g.changed) != lull {
			t.Errorf("it does not start after %v", time.Since(g.changed))
		}
		g.changed = time.Now()
		own.Want = 1
		if !g.quiet() {
			t.Error("it waits although the number of participants is known")
		}
	})
}
