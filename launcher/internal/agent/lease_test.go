package agent

import (
	"bytes"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// A step of a lease of 16 s, which is looked at every second.
type step struct {
	at   int    // seconds
	what string // "heard", "signs", "look", "rest", "go on", "greet"
	over bool
}

func TestLease(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"silence", append(looksAt(1, 15), step{16, "look", true})},
		{"heard", append(append(looksAt(1, 15), step{15, "heard", false}), looksAt(16, 30)...)},
		{"heard again", append(append(looksAt(1, 15), step{15, "heard", false}), append(looksAt(16, 30), step{31, "look", true})...)},
		{"a late look: this process stood still", append([]step{{100, "look", false}}, append(looksAt(101, 114), step{115, "look", true})...)},
		{"heard before a late look", append(append([]step{{100, "heard", false}, {100, "look", false}}, looksAt(101, 115)...), step{116, "look", true})},
		{"looks that are a little late", append(looksEvery(2, 14), step{16, "look", true})},
		{"looks that are late each time", append(looksEvery(3, 45), step{48, "look", true})},
		{"old news", append(append(looksAt(1, 15), step{0, "heard", false}), step{16, "look", true})},
		{"greeted, and never heard", append(append([]step{{0, "greet", false}}, looksAt(1, 19)...), step{20, "look", true})},
		{"greeted, and heard", append(append([]step{{0, "greet", false}}, append(looksAt(1, 18), step{18, "heard", false})...), append(looksAt(19, 33), step{34, "look", true})...)},
		{"greeted, and signs already", append([]step{{0, "signs", false}, {20, "greet", false}}, append(looksAt(21, 35), step{36, "look", true})...)},
		{"greeted, signs later", append(append([]step{{0, "greet", false}}, append(looksAt(1, 18), step{18, "signs", false})...), append(looksAt(19, 33), step{34, "look", true})...)},
		{"heard before it was greeted", append([]step{{15, "heard", false}, {16, "greet at 10", false}}, append(looksAt(17, 34), step{35, "look", true})...)},
		{"rests", append(append([]step{{1, "rest", false}}, looksAt(1, 60)...), append([]step{{60, "go on", false}}, append(looksAt(61, 75), step{76, "look", true})...)...)},
	} {
		var l Lease
		begin := time.Unix(1000, 0)
		l.Begin(Looks*time.Second, begin)
		for _, s := range c.steps {
			now := begin.Add(time.Duration(s.at) * time.Second)
			switch s.what {
			case "heard":
				l.Renew(now)
			case "signs":
				l.Sign(now)
			case "greet":
				l.Greeted(Looks*time.Second, now, now)
			case "greet at 10":
				l.Greeted(Looks*time.Second, begin.Add(10*time.Second), now)
			case "rest", "go on":
				l.Rest(s.what == "rest")
			default:
				if silent, over := l.Over(now); over != s.over {
					t.Errorf("%s: after %d s: silent for %v, over %v, want %v", c.name, s.at, silent, over, s.over)
				}
			}
		}
	}
}

func looksEvery(seconds, to int) (steps []step) {
	for at := seconds; at <= to; at += seconds {
		steps = append(steps, step{at, "look", false})
	}
	return steps
}

func looksAt(from, to int) (steps []step) {
	for at := from; at <= to; at++ {
		steps = append(steps, step{at, "look", false})
	}
	return steps
}

func TestLeaseRestsWhileTheJobIsSuspended(t *testing.T) {
	var v vigil
	now := time.Now()
	lostAfter := func(begin time.Duration) (lost bool) {
		for i := range 2 * Looks {
			lost = lost || v.lost(now.Add(begin+time.Duration(i)*time.Hour/Looks))
		}
		return lost
	}
	v.lease.Begin(time.Hour, now)
	v.stream.Begin(time.Hour, now)
	v.obey(&order{Command: &host.Command{Kind: host.Pass, Signal: syscall.SIGTSTP, Ranks: []int{1}}})
	if !lostAfter(0) {
		t.Error("it rests although one rank alone is suspended")
	}
	v.lease.Begin(time.Hour, now)
	v.stream.Begin(time.Hour, now)
	v.obey(&order{Command: &host.Command{Kind: host.Pass, Signal: syscall.SIGTSTP}})
	for i := range 4 * Looks {
		if v.lost(now.Add(time.Duration(i) * time.Hour / Looks)) {
			t.Fatal("it is over while the job is suspended")
		}
	}
	v.obey(&order{Command: &host.Command{Kind: host.Pass, Signal: syscall.SIGCONT}})
	if !lostAfter(4 * time.Hour) {
		t.Error("it rests when the job goes on")
	}
}

func TestDatagramsThatRenewNothing(t *testing.T) {
	key, other := bytes.Repeat([]byte{7}, KeySize), bytes.Repeat([]byte{8}, KeySize)
	good := appendDatagram(nil, key, fromAgent, 3, 9)
	if agent, count, last, ok := parseDatagram(good, key, fromAgent); !ok || last || agent != 3 || count != 9 {
		t.Fatalf("a good one: got %d, %d, %v, %v", agent, count, last, ok)
	}
	bad := map[string][]byte{
		"nothing":                       nil,
		"another key":                   appendDatagram(nil, other, fromAgent, 3, 9),
		"the other side":                appendDatagram(nil, key, fromGorun, 3, 9),
		"a last word of the other side": appendDatagram(nil, key, lastWord, 3, 9),
		"too long":                      append(bytes.Clone(good), 0),
		"too short":                     good[:len(good)-1],
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i]++
		bad["byte "+string(rune('a'+i))] = b
	}
	for name, b := range bad {
		if _, _, _, ok := parseDatagram(b, key, fromAgent); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	key := bytes.Repeat([]byte{7}, KeySize)
	f.Add(appendDatagram(nil, key, fromAgent, 3, 9))
	f.Add([]byte(datagramMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if agent, count, _, ok := parseDatagram(b, key, fromAgent); ok && !bytes.Equal(b, appendDatagram(nil, key, fromAgent, agent, count)) {
			t.Errorf("%x: taken as %d, %d", b, agent, count)
		}
	})
}

// Both ends hear each other once gorun knows where the agent is; a copy and a stranger's
// datagram are heard by neither.
func TestDatagramsGoBothWays(t *testing.T) {
	testenv.NoLeaks(t)
	key := bytes.Repeat([]byte{7}, KeySize)
	toGorun, toAgent := make(chan int, 10), make(chan int, 10)
	heard := func(at chan int) int {
		t.Helper()
		select {
		case agent := <-at:
			return agent
		case <-time.After(testenv.Limit(20 * time.Second)):
			t.Fatal("a datagram was not heard")
			return 0
		}
	}
	gorun, err := ListenDatagrams(key, 2, ports.Range{}, func(agent int) { toGorun <- agent })
	if err != nil {
		t.Fatal(err)
	}
	defer gorun.Close()
	agent, err := openDatagrams(key, fromAgent, 2, ports.Range{}, func(agent int, last bool) {
		if last {
			agent = -agent
		}
		toAgent <- agent
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	gorun.Send(1) // it goes nowhere
	at := netip.AddrPortFrom(loopback, uint16(gorun.Port()))
	agent.Send(1, at)
	if got := heard(toGorun); got != 1 {
		t.Errorf("gorun heard agent %d, want 1", got)
	}
	gorun.Send(1)
	if got := heard(toAgent); got != 1 {
		t.Errorf("heard of agent %d, want 1", got)
	}
	gorun.Dismiss(1)
	if got := heard(toAgent); got != -1 {
		t.Errorf("heard of agent %d, want the last word to 1", got)
	}

	stranger, err := net.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, b := range [][]byte{
		appendDatagram(nil, key, fromAgent, 1, 1), // a copy of the first
		appendDatagram(nil, key, fromAgent, 2, 1), // of no agent
		appendDatagram(nil, key[1:], fromAgent, 0, 1),
		[]byte("hello"),
		appendDatagram(nil, key, fromAgent, 0, 5), // the last, which is good
	} {
		if _, err := stranger.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := heard(toGorun); got != 0 {
		t.Errorf("gorun heard agent %d, want none before 0", got)
	}
}

func TestWhereTheControllerIs(t *testing.T) {
	for _, c := range []struct {
		way     Way
		session string
		want    string
	}{
		{Way{Remote: true, Toward: "10.0.0.1"}, "10.0.0.1 5 10.0.0.2 22", "[10.0.0.1:7]"},
		{Way{Remote: true, Toward: "10.0.0.1"}, "192.0.2.9 5 10.0.0.2 22", "[192.0.2.9:7 10.0.0.1:7]"}, // through another host
		{Way{Remote: true, Toward: "10.0.0.1"}, "", "[10.0.0.1:7]"},
		{Way{Remote: true}, "2001:db8::1 5 2001:db8::2 22", "[[2001:db8::1]:7]"},
		{Way{Remote: true, Toward: "nonsense"}, "what is this?", "[]"},
	} {
		if got := c.way.controller(sshClient(c.session), 7); textOf(got) != c.want {
			t.Errorf("%+v, %q: got %v, want %s", c.way, c.session, got, c.want)
		}
	}
}

func textOf(list []netip.AddrPort) string {
	text := "["
	for i, a := range list {
		if i > 0 {
			text += " "
		}
		text += a.String()
	}
	return text + "]"
}
