package agent

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// A session is the TCP connection of the remote shell that has started this process.
type session struct{ here, there netip.AddrPort }

// sessionOf takes SSH_CONNECTION apart.
func sessionOf(text string) (s session, ok bool) {
	f := strings.Fields(text)
	if len(f) != 4 {
		return s, false
	}
	for i, end := range [...]*netip.AddrPort{&s.there, &s.here} {
		a, err := netip.ParseAddr(f[2*i])
		port, err2 := strconv.ParseUint(f[2*i+1], 10, 16)
		if err != nil || err2 != nil {
			return s, false
		}
		*end = netip.AddrPortFrom(a.Unmap().WithZone(""), uint16(port))
	}
	return s, true
}

// proves tells whether the other end of a session is the machine that an agent depends on: gorun's, of which Way.Toward is an address,
// or that of the relay that has started it, whose own agent ends it when it hears no more of gorun. Behind a third machine,
// as of ProxyJump, it is neither.
func (s session) proves(w Way, relay *relayWord) bool {
	if relay != nil && relay.PID == 0 {
		return true
	}
	a, err := netip.ParseAddr(w.Toward)
	return err == nil && a.Unmap().WithZone("") == s.there.Addr()
}

// acknowledged tells whether the other machine's kernel has acknowledged all that was sent, or answers that it takes no more now;
// not where /proc does not show the connection.
func (s session) acknowledged() bool {
	for _, name := range [...]string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(name)
		for line := range strings.Lines(string(table)) {
			if found, is := s.row(strings.Fields(line)); found {
				return is
			}
		}
	}
	return false
}

// row reads a row of that table, of which these are fields: both ends, the state, bytes that are sent and not acknowledged, the timer that
// runs, and how often in a row it has repeated a segment or, in front of a full window, a probe.
func (s session) row(f []string) (found, acknowledged bool) {
	const local, remote, state, queues, timer, repeats, probes = 1, 2, 3, 4, 5, 6, 8
	const established, probesWindow = "01", "04:"
	if len(f) <= probes || tableEnd(f[local]) != s.here || tableEnd(f[remote]) != s.there {
		return false, false
	}
	none := func(number string) bool { return strings.Trim(number, "0") == "" }
	sent, _, _ := strings.Cut(f[queues], ":")
	return true, f[state] == established && none(f[repeats]) && none(f[probes]) && (none(sent) || strings.HasPrefix(f[timer], probesWindow))
}

// tableEnd is one end of a connection there: words of the address in this machine's order, and the port.
func tableEnd(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for ; len(address) > 0; address = address[8:] {
		at := b[len(b)-len(address)/2:]
		binary.BigEndian.PutUint32(at, binary.NativeEndian.Uint32(at))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p))
}

// An excuse is what speaks for a gorun that says nothing: the kernel of its machine acknowledges what the agent says, so
// it has no CPU, or is stopped. It belongs to one goroutine.
type excuse struct {
	limit  time.Duration // a lease
	speak  func()        // has something sent that has to be acknowledged
	heeded func() bool   // whether that has been; nil: nothing tells
	spoke  bool          // in this silence
	proof  time.Time     // when it was last acknowledged
}

// holds is called at each look of a silence, and tells whether the other machine acknowledges.
func (e *excuse) holds(silent time.Duration, now time.Time) bool {
	switch {
	case e.heeded == nil:
		return false
	case silent < e.limit/2:
		e.spoke, e.proof = false, time.Time{}
		return false
	}
	if e.spoke && e.heeded() {
		e.proof = now
	}
	e.speak()
	e.spoke = true
	return now.Sub(e.proof) < e.limit/2
}
