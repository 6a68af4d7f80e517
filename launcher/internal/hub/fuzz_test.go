package hub

import (
	"errors"
	"testing"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// FuzzTake has the helpers of three hosts send the hub anything. Bytes 0xfe part what
// they send; the first byte of a piece is the host. All answers go to a host that
// there is, as messages that can be read.
func FuzzTake(f *testing.F) {
	a0, a2, b0 := link.Proc{Space: "a"}, link.Proc{Space: "a", Rank: 2}, link.Proc{Space: "b"}
	seed := func(list ...any) {
		var b []byte
		for i := 0; i < len(list); i += 2 {
			m := list[i+1].(link.Message)
			data, err := link.Pack(&m)
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(append(b, byte(list[i].(int))), data...), 0xfe)
		}
		f.Add(b)
	}
	meet := link.Message{Kind: link.Ask, Op: link.Meet, ID: 1, Procs: []link.Proc{{Space: "a", Rank: Wildcard}}, Data: []byte("x"), Wait: true}
	seed(0, meet, 1, meet)
	seed(2, meet, 0, link.Message{Kind: link.Ask, Op: link.Meet, ID: 2, Procs: []link.Proc{a0, b0, {Space: "c", Rank: 7}}})
	seed(0, link.Message{Kind: link.Ask, Op: link.Modex, ID: 3, Proc: a2}, 1, link.Message{Kind: link.Reply, ID: 1, Data: []byte("modex")}, 1, link.Message{Kind: link.Reply, ID: 9})
	pair := link.Pair{Key: "k", Value: []byte("v"), Text: true, By: a0, Once: true}
	seed(0, link.Message{Kind: link.Ask, Op: link.Lookup, ID: 4, Proc: b0, Keys: []string{"k"}, Wait: true}, 1, link.Message{Kind: link.Ask, Op: link.Publish, ID: 5, Pairs: []link.Pair{pair}},
		0, link.Message{Kind: link.Ask, Op: link.Forget, ID: 4}, 1, link.Message{Kind: link.Ask, Op: link.Unpublish, ID: 6, Proc: a0, Keys: []string{"k"}})
	seed(0, link.Message{Kind: link.Ask, Op: link.Notify, Data: []byte("e")}, 1, link.Message{Kind: link.Ask, Op: link.Spawn, ID: 7, Proc: a2, Apps: []link.App{{Argv: []string{"p"}, NP: 1}}},
		2, link.Message{Kind: link.Ask, Op: link.Table, ID: 8}, 2, link.Message{Kind: link.Ask, Op: link.Control, ID: 9, Status: 15, Procs: []link.Proc{a0}})
	f.Add([]byte{1, 0xc1, 0xfe, 2, 0x80})
	f.Fuzz(func(t *testing.T, script []byte) {
		h := job()
		check := func(letters []Letter) {
			for _, l := range letters {
				m, err := link.Unpack(l.Data)
				if err != nil || l.To < 0 || l.To > 2 {
					t.Fatalf("a letter to host %d that is no message: %v", l.To, err)
				}
				if m.Kind != link.Answer && m.Kind != link.Request && m.Kind != link.Event && m.Kind != link.Setup {
					t.Errorf("a letter of kind %d", m.Kind)
				}
			}
		}
		for len(script) > 0 {
			piece := script
			script = nil
			for i, c := range piece {
				if c == 0xfe {
					piece, script = piece[:i], piece[i+1:]
					break
				}
			}
			if len(piece) == 0 {
				continue
			}
			letters, due, err := h.Take(int(piece[0])%3, piece[1:])
			if err != nil {
				if !errors.Is(err, link.ErrFrame) || letters != nil || due != nil {
					t.Fatalf("%x: %v, with %d letters", piece, err, len(letters))
				}
				continue
			}
			check(letters)
			if due != nil {
				l, err := due.Answer(link.Message{Text: "no"})
				if err != nil {
					t.Fatal(err)
				}
				check([]Letter{l})
			}
			if len(h.names) > namesMax {
				t.Fatalf("%d names", len(h.names))
			}
		}
	})
}
