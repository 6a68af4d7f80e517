package softtls

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/rdma/soft"
)

var secret = []byte("a secret of this test and no job")

// shake has two ends shake hands.
func shake(t testing.TB, serverSecret, clientSecret []byte, serverName, clientName string) (server, client soft.Sealer, serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	var both sync.WaitGroup
	both.Go(func() {
		if server, serverErr = Handshake(a, serverSecret, serverName, true); serverErr != nil {
			a.Close()
		}
	})
	if client, clientErr = Handshake(b, clientSecret, clientName, false); clientErr != nil {
		b.Close()
	}
	both.Wait()
	return server, client, serverErr, clientErr
}

func ends(t testing.TB) (server, client soft.Sealer) {
	t.Helper()
	server, client, serverErr, clientErr := shake(t, secret, secret, "name", "name")
	if serverErr != nil || clientErr != nil {
		t.Fatal(serverErr, clientErr)
	}
	return server, client
}

// A connection at rest keeps no memory for records: they stand in what the caller gave, which has room for more.
func TestSealKeepsNoRecords(t *testing.T) {
	server, client := ends(t)
	dst := append(make([]byte, 0, 128<<10), "before"...)
	out, err := client.Seal(dst, [][]byte{make([]byte, 64<<10)})
	if err != nil || !bytes.HasPrefix(out, dst) || &out[0] != &dst[0] {
		t.Fatalf("%d bytes, %v; want the records behind what was there", len(out), err)
	}
	if k := cap(client.(*sealer).out); k != 0 {
		t.Errorf("%d bytes are kept, want none", k)
	}
	plain, used, err := server.Open(make([]byte, 0, len(out)), out[len(dst):])
	if err != nil || used != len(out)-len(dst) || len(plain) != 64<<10 {
		t.Errorf("opened %d bytes of %d, %v", len(plain), used, err)
	}
}

// The listener finds out; a dialler whose TLS has ended before that gets no welcome.
func TestHandshakeRefuses(t *testing.T) {
	other := []byte("another secret, that is as long ")
	for name, c := range map[string]struct {
		secret []byte
		name   string
	}{"another secret": {other, "name"}, "another name": {secret, "other"}} {
		if _, _, serverErr, _ := shake(t, secret, c.secret, "name", c.name); serverErr == nil {
			t.Errorf("%s: the server accepts it", name)
		}
		if _, _, _, clientErr := shake(t, c.secret, secret, c.name, "name"); clientErr == nil {
			t.Errorf("%s: the client accepts it", name)
		}
	}
}

// Whatever the pieces in which it is sealed and arrives, what comes out is what went in.
func TestSealAndOpen(t *testing.T) {
	server, client := ends(t)
	var both sync.WaitGroup
	for i, way := range [][2]soft.Sealer{{server, client}, {client, server}} {
		both.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			var said, wire, got []byte
			for round := range 60 {
				var bufs [][]byte
				for range rng.IntN(5) {
					b := make([]byte, rng.IntN(1<<(3+rng.IntN(14))))
					for k := range b {
						b[k] = byte(rng.Uint32())
					}
					bufs, said = append(bufs, b), append(said, b...)
				}
				var err error
				if wire, err = way[0].Seal(wire, bufs); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				for len(wire) > 0 {
					n := 1 + rng.IntN(len(wire))
					plain, used, err := way[1].Open(make([]byte, 0, n), wire[:n])
					if err != nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
					got, wire = append(got, plain...), wire[used:]
					if used == 0 && rng.IntN(2) == 0 {
						break // it waits for more
					}
				}
			}
			plain, used, err := way[1].Open(make([]byte, 0, len(wire)), wire)
			if got = append(got, plain...); err != nil || used != len(wire) || !bytes.Equal(got, said) {
				t.Errorf("way %d: %v, %d of %d bytes used, %d came of %d", i, err, used, len(wire), len(got), len(said))
			}
		})
	}
	both.Wait()
}

// A record that was changed, left out, repeated or made elsewhere is an error, and so is all behind it.
func TestOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(one, two []byte) []byte{
		"changed":     func(one, _ []byte) []byte { one[len(one)/2] ^= 1; return one },
		"left out":    func(_, two []byte) []byte { return two },
		"repeated":    func(one, _ []byte) []byte { return append(bytes.Clone(one), one...) },
		"in clear":    func(one, _ []byte) []byte { return append([]byte{23, 3, 3, 0, 5}, "clear"...) },
		"too long":    func(one, _ []byte) []byte { return []byte{23, 3, 3, 0x50, 0} },
		"its own":     nil,
		"end of data": func(_, _ []byte) []byte { return []byte{21, 3, 3, 0, 2, 1, 0} },
	} {
		server, client := ends(t)
		one, _ := client.Seal(nil, [][]byte{[]byte("first of two records")})
		two, _ := client.Seal(nil, [][]byte{[]byte("second")})
		var in []byte
		if change == nil {
			in, _ = server.Seal(nil, [][]byte{[]byte("of the server")})
		} else {
			in = change(bytes.Clone(one), two)
		}
		if plain, _, err := server.Open(make([]byte, 0, len(in)), in); err == nil || len(plain) > len("first of two records") {
			t.Errorf("%s: got %q, %v, want an error", name, plain, err)
		}
		if plain, _, err := server.Open(make([]byte, 0, len(two)), two); err == nil {
			t.Errorf("%s: what comes behind it gives %q", name, plain)
		}
	}
}

// FuzzOpen: what no end has sealed gives nothing, and does no harm.
func FuzzOpen(f *testing.F) {
	server, client := ends(f)
	good, _ := client.Seal(nil, [][]byte{[]byte("good")})
	_ = server
	f.Add(good)
	f.Add([]byte{23, 3, 3, 0, 1, 0, 22, 3, 3, 0, 0})
	f.Add([]byte{20, 3, 3, 0, 1, 1, 20, 3, 3, 0, 1, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		server, _ := ends(t)
		plain, used, err := server.Open(make([]byte, 0, len(in)), in)
		if len(plain) > 0 || used > len(in) {
			t.Errorf("%x gives %x, %d, %v", in, plain, used, err)
		}
	})
}

func BenchmarkHandshake(b *testing.B) {
	for b.Loop() {
		ends(b)
	}
}

func BenchmarkSealAndOpen(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			server, client := ends(b)
			said, plain := [][]byte{make([]byte, 64), make([]byte, size)}, make([]byte, 0, 2*size+200)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var wire []byte
			for b.Loop() {
				wire, _ = client.Seal(wire[:0], said)
				if got, _, err := server.Open(plain, wire); len(got) != size+64 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
