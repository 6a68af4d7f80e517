package wireup

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rdma"
)

func numbers(v ...uint32) Numbers {
	var s Numbers
	for _, n := range v {
		s.Add(n)
	}
	return s
}

func sample() Card {
	return Card{Host: "a", Place: "job/a", Local: 3, PID: 1 << 20, Device: "mlx5_0", Provider: "soft", GID: rdma.GID{0xfe, 0x80, 15: 9},
		Endpoint: bytes.Repeat([]byte{7}, 300), MTU: rdma.MTU4096, Messages: numbers(1, 2, 3, 90), Collectives: numbers(256, 512, 768),
		Mail: mail.Address{Number: 1<<24 - 1, Key: 1<<31 - 1}, Target: Target{Number: 1<<24 - 1, Key: 1<<64 - 1}, Control: 1<<63 + 5, ControlKey: 1<<32 - 1, Team: []byte{1, 2, 3}}
}

func TestCardRoundTrip(t *testing.T) {
	for name, c := range map[string]Card{"full": sample(), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			got, err := parseOne(c.Pack())
			if err != nil || !reflect.DeepEqual(got, c) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c)
			}
		})
	}
}

func TestCards(t *testing.T) {
	one, other := sample(), sample()
	other.Host, other.Provider, other.Local = "b", "verbs", 4
	got, err := ParseCards([][]byte{one.Pack(), one.Pack(), other.Pack(), (&Card{}).Pack()})
	if want := []Card{one, one, other, {}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if _, err := ParseCards([][]byte{one.Pack(), {1, 2}, one.Pack()}); !errors.Is(err, errVersion) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a damaged card: %v, want %v of rank 1", err, errVersion)
	}
}

// The card is msgpack: a library reads the same out of it.
func TestCardIsMsgpack(t *testing.T) {
	c := sample()
	var got []any
	if err := msgpack.Unmarshal(c.Pack(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != cardFields || got[1] != "a" || got[2] != "job/a" || !bytes.Equal(got[8].([]byte), c.Endpoint) {
		t.Errorf("a library reads %v", got)
	}
	g := Greeting{Host: "h", Machine: "m", Kernel: "k", PID: 7, Secret: []byte{1}}
	got = nil
	if err := msgpack.Unmarshal(g.Pack(), &got); err != nil || len(got) != greetingFields || got[1] != "h" || got[2] != "m" {
		t.Errorf("a library reads %v, %v", got, err)
	}
}

func TestCardDamaged(t *testing.T) {
	c := sample()
	good := c.Pack()
	for n := range good {
		if _, err := parseOne(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes pass for a card", n, len(good))
		}
	}
	if _, err := parseOne(append(slices.Clone(good), 0)); err == nil {
		t.Error("a card with a byte too many passes")
	}
	other := slices.Clone(good)
	other[1]++ // the version
	if _, err := parseOne(other); err != errVersion {
		t.Errorf("another version: %v, want %v", err, errVersion)
	}
}

func TestGreetingRoundTrip(t *testing.T) {
	g := Greeting{Host: "h", Machine: "boot ns 0", Kernel: "boot", CPUs: "0-3,8", Limit: "group", PID: 99, Secret: bytes.Repeat([]byte{3}, 32), Network: "boot net 1", Nets: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("2001:db8::1/64")}}
	packed := g.Pack()
	if got, err := ParseGreeting(packed); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("got %+v, %v; want %+v", got, err, g)
	}
	for n := range packed {
		if _, err := ParseGreeting(packed[:n]); err == nil {
			t.Errorf("the first %d of %d bytes pass for a greeting", n, len(packed))
		}
	}
}

func TestNumbers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	random := make([]uint32, 300)
	for i := range random {
		random[i] = uint32(rnd.IntN(1 << 24))
	}
	sequence := make([]uint32, 1000)
	for i := range sequence {
		sequence[i] = 77 + 3*uint32(i)
	}
	for _, tt := range []struct {
		name string
		list []uint32
		most int // bytes in a card
	}{
		{"none", nil, 1},
		{"one", []uint32{5}, 4},
		{"falling", []uint32{9, 8, 7, 7}, 13},
		{"a sequence", sequence, 7},
		{"random", random, 300*7 + 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := numbers(tt.list...)
			w := pack.NewWriter(0)
			s.pack(w)
			packed := w.Bytes()
			if len(packed) > tt.most {
				t.Errorf("%d bytes, want at most %d", len(packed), tt.most)
			}
			var back Numbers
			r := pack.NewReader(packed)
			back.parse(r)
			if r.Err() != nil || back.Len() != len(tt.list) {
				t.Fatalf("%d numbers come back, %v; want %d", back.Len(), r.Err(), len(tt.list))
			}
			for i, want := range tt.list {
				if got := back.At(i); got != want {
					t.Errorf("number %d is %d, want %d", i, got, want)
				}
			}
		})
	}
}

func TestNumbersFor(t *testing.T) {
	s := numbers(10, 11, 13) // rank 2's, for ranks 0, 1 and 3
	for peer, want := range map[int]uint32{0: 10, 1: 11, 3: 13} {
		if got := s.For(2, peer); got != want {
			t.Errorf("rank 2's number for rank %d is %d, want %d", peer, got, want)
		}
	}
}

func FuzzParseCard(f *testing.F) {
	c := sample()
	f.Add(c.Pack())
	f.Add((&Card{}).Pack())
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseOne(b)
		if err != nil {
			return
		}
		again, err := parseOne(c.Pack())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v comes back as %+v, %v", c, again, err)
		}
	})
}

func parseOne(b []byte) (Card, error) { return parseCard(pack.NewReader(b), b, &Card{}) }
