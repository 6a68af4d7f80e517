package gossip

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"
)

// dry runs the fences of several hosts against each other without I/O.
type dry struct {
	t      *testing.T
	rng    *rand.Rand
	hosts  []*fences
	flight []outgoing
	lose   float64 // part of the messages that are lost
	double float64 // part that come twice
}

func newDry(t *testing.T, hosts, fanout int, seed int64) *dry {
	d := &dry{t: t, rng: rand.New(rand.NewSource(seed))}
	for i := range hosts {
		d.hosts = append(d.hosts, newFences(i, hosts, fanout))
	}
	return d
}

// dryData is distinct for each host and epoch.
func dryData(host int, epoch uint64) []byte {
	return bytes.Repeat([]byte{byte(host), byte(epoch)}, (host*3+int(epoch))%7)
}

// post takes what a host wants sent, through the codec.
func (d *dry) post(host int) {
	for _, o := range d.hosts[host].take() {
		if o.m.from != host {
			d.t.Fatalf("host %d sends as %d", host, o.m.from)
		}
		d.hosts[host].sent(o)
		m, err := parseMessage(o.m.appendTo(nil), len(d.hosts))
		if err != nil {
			d.t.Fatalf("own message %+v: %v", o.m, err)
		}
		switch p := d.rng.Float64(); {
		case p < d.lose:
		case p < d.lose+d.double:
			d.flight = append(d.flight, outgoing{o.to, m}, outgoing{o.to, m})
		default:
			d.flight = append(d.flight, outgoing{o.to, m})
		}
	}
}

// deliver takes any message in flight.
func (d *dry) deliver() {
	i := d.rng.Intn(len(d.flight))
	o := d.flight[i]
	d.flight[i] = d.flight[len(d.flight)-1]
	d.flight = d.flight[:len(d.flight)-1]
	d.hosts[o.to].receive(o.m)
	d.post(o.to)
}

func TestFencesDry(t *testing.T) {
	kinds := []struct {
		name         string
		lose, double float64
	}{{"reliable", 0, 0}, {"lossy", 0.3, 0.1}, {"doubling", 0, 0.5}, {"very lossy", 0.5, 0.2}}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for hosts := 1; hosts <= 33; hosts += 1 + hosts/12 {
				for fanout := 1; fanout <= 4; fanout++ {
					d := newDry(t, hosts, fanout, int64(hosts*10+fanout))
					d.lose, d.double = kind.lose, kind.double
					d.run(5, 2)
					if t.Failed() {
						t.Fatalf("hosts %d fanout %d", hosts, fanout)
					}
				}
			}
		})
	}
}

// run completes epochs fences, each host having at most ahead at a time.
func (d *dry) run(epochs uint64, ahead int) {
	waits := make([][]*fence, len(d.hosts))
	entered := make([]uint64, len(d.hosts))
	const stepsMax = 2_000_000
	for step := 0; ; step++ {
		if step == stepsMax {
			d.t.Fatalf("no end after %d steps", step)
		}
		busy := false
		h := d.rng.Intn(len(d.hosts))
		if entered[h] < epochs && len(waits[h]) < ahead {
			v, ok := d.hosts[h].contribute(entered[h], dryData(h, entered[h]))
			if !ok {
				d.t.Fatalf("host %d epoch %d: refused", h, entered[h])
			}
			waits[h] = append(waits[h], v)
			entered[h]++
			d.post(h)
		}
		if len(d.flight) > 0 && d.rng.Intn(4) > 0 {
			d.deliver()
		}
		// Callers that wait ask now and then.
		if d.rng.Intn(8) == 0 && len(waits[h]) > 0 {
			d.hosts[h].probe(waits[h][d.rng.Intn(len(waits[h]))])
			d.post(h)
		}
		for h := range waits {
			for i := 0; i < len(waits[h]); {
				v := waits[h][i]
				if v.all == nil {
					i++
					continue
				}
				for other, got := range v.all {
					if want := dryData(other, v.epoch); !bytes.Equal(got, want) {
						d.t.Fatalf("host %d epoch %d: host %d is %x, want %x", h, v.epoch, other, got, want)
					}
				}
				d.hosts[h].release(v)
				waits[h] = append(waits[h][:i], waits[h][i+1:]...)
			}
			busy = busy || len(waits[h]) > 0 || entered[h] < epochs
		}
		if !busy && len(d.flight) == 0 {
			break
		}
	}
	for h, f := range d.hosts {
		if f.next != epochs {
			d.t.Errorf("host %d: next epoch %d, want %d", h, f.next, epochs)
		}
		// Only what a child has not said to be complete is kept.
		if len(f.open) > 2*ahead+2 && d.lose == 0 {
			d.t.Errorf("host %d keeps %d fences", h, len(f.open))
		}
		if len(f.children()) == 0 && len(f.open) > 0 {
			d.t.Errorf("leaf %d keeps %d fences", h, len(f.open))
		}
	}
}

func TestFenceMessages(t *testing.T) {
	for _, hosts := range []int{1, 2, 5, 16, 33} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			d := newDry(t, hosts, 2, 1)
			sent := 0
			for h := range d.hosts {
				d.hosts[h].contribute(0, dryData(h, 0))
				d.post(h)
			}
			for len(d.flight) > 0 {
				d.deliver()
				sent++
			}
			if want := 2 * (hosts - 1); sent != want {
				t.Errorf("a fence takes %d messages, want %d", sent, want)
			}
		})
	}
}

func TestSplitAndJoinParts(t *testing.T) {
	for _, size := range []int{0, 1, partMax - 1, partMax, partMax + 1, 6*partMax + 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			d := newDry(t, 3, 2, 1)
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(i * i >> 8)
			}
			v, _ := d.hosts[1].contribute(0, data)
			d.post(1)
			for _, h := range []int{2, 0} {
				d.hosts[h].contribute(0, []byte{byte(h)})
				d.post(h)
			}
			for len(d.flight) > 0 {
				if s := d.flight[0].m.size(); s > messageMax+partMax {
					t.Errorf("a message of %d bytes", s)
				}
				d.deliver()
			}
			for h, f := range d.hosts {
				if got := f.at(0); got == nil || !bytes.Equal(got.all[1], data) {
					t.Errorf("host %d has not got the %d bytes", h, size)
				}
			}
			if !bytes.Equal(v.all[2], []byte{2}) || !bytes.Equal(v.all[0], []byte{0}) {
				t.Errorf("got %x and %x", v.all[0], v.all[2])
			}
		})
	}
}

// A push-pull between any two hosts makes good what the tree lost.
func TestSyncRepairs(t *testing.T) {
	d := newDry(t, 7, 2, 3)
	d.lose = 1
	for h := range d.hosts {
		d.hosts[h].contribute(0, dryData(h, 0))
		d.post(h)
	}
	for h := 1; h < 7; h++ {
		for _, m := range d.hosts[h].sync(syncMax) {
			d.hosts[0].receive(m)
		}
	}
	v := d.hosts[0].at(0)
	if !v.complete() {
		t.Fatalf("host 0 misses %v after push-pulls with all", d.hosts[0].missing(v))
	}
	for _, m := range d.hosts[0].sync(syncMax) {
		d.hosts[5].receive(m)
	}
	if v := d.hosts[5].at(0); !v.complete() {
		t.Errorf("host 5 is not complete after a push-pull with host 0")
	}
	if got := d.hosts[0].sync(8); len(got) != 0 {
		t.Errorf("sync over its limit: %d messages", len(got))
	}
}

func FuzzMessage(f *testing.F) {
	m := message{kind: kindUp, from: 2, epoch: 7, next: 6, parts: []part{{2, 0, 2, []byte("ab")}, {2, 1, 2, nil}}}
	f.Add(m.appendTo(nil))
	m.kind, m.parts = kindProbe, nil
	f.Add(m.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		const hosts = 5
		m, err := parseMessage(b, hosts)
		if err != nil {
			return
		}
		if again := m.appendTo(nil); !bytes.Equal(again, b) {
			t.Errorf("%x reads back as %x", b, again)
		}
		fs := newFences(1, hosts, 2)
		fs.contribute(m.epoch, []byte("x"))
		fs.receive(m)
		for _, o := range fs.take() {
			if o.to < 0 || o.to >= hosts || o.to == 1 {
				t.Errorf("message to host %d", o.to)
			}
		}
	})
}
