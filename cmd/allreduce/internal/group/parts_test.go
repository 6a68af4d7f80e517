package group

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func seeds(f *testing.F) {
	for _, fr := range []frame{
		{Kind: kindHello, Hello: &hello{Magic: magic, Version: protocolVersion, Kind: Daemon, ID: newID(), Label: "host:1", Config: config(100, "float", "sum", Auto)}},
		{Kind: kindAnswer, Answer: &answer{"full"}},
		{Kind: kindRecord, Records: []record{{ID: "a", Version: 3, Kind: Direct, Open: []string{"b:2"}, Knows: []byte{1}, Clients: []client{{"c", "d"}}}}},
		{Kind: kindStart, Start: &start{IDs: []string{"a", "b"}, Seats: []Seat{{Kind: Direct}, {Kind: Daemon}}, Host: "h", Port: 1, Key: []byte{2}}},
		{Kind: kindBye, Text: "interrupted"},
	} {
		var b bytes.Buffer
		if err := writeFrame(&b, &fr); err != nil {
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
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			var again, twice bytes.Buffer
			if err := writeFrame(&again, &fr); err != nil {
				t.Fatalf("%+v cannot be written: %v", fr, err)
			}
			first := bytes.Clone(again.Bytes())
			fr2, err := readFrame(&again)
			if err == nil {
				err = writeFrame(&twice, &fr2)
			}
			if err != nil || !bytes.Equal(first, twice.Bytes()) {
				t.Fatalf("%+v; again %+v, %v", fr, fr2, err)
			}
			if fr.Start != nil {
				_ = fr.Start.sound()
			}
		}
	})
}

// Whatever a participant tells of others, a view stays bounded and can be asked.
func FuzzView(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		v := view{self: "self", records: map[string]*record{"self": {ID: "self", Kind: Daemon}}}
		r := bytes.NewReader(b)
		for {
			fr, err := readFrame(r)
			if err != nil {
				break
			}
			for _, record := range fr.Records {
				if _, err := v.learn(record); err != nil {
					return
				}
			}
		}
		if own := v.records["self"]; own == nil || own.Version != 0 {
			t.Fatal("a record of this participant itself was taken from another one")
		}
		_, _ = v.missing(), v.tooMany()
		if s := (&start{Seats: first(v.seats())}); !s.sound() {
			t.Fatalf("the seats %+v are those of no group", s.Seats)
		}
		if len(v.order()) != len(v.records) {
			t.Fatalf("%d members in order, %d records", len(v.order()), len(v.records))
		}
	})
}

// A group whose size nobody has told starts when nothing has changed for a while.
func TestGroupWaitsForThoseStartedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := record{ID: "self", Kind: Daemon}
		g := &group{kick: make(chan struct{}, 1), changed: time.Now(), view: view{self: "self", records: map[string]*record{"self": &own}}}
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

func first[A, B any](a A, _ B) A { return a }
