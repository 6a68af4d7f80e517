package agent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"

	"github.com/gorun-mpi/gorun/internal/ports"
)

// Gorun and the agents of other machines tell each other by datagrams that they live: a
// stream over a network that loses packets stands still for seconds. A datagram is
//
//	magic 8 | side 1 | agent 4 | count 8 | HMAC-SHA256(key, all before it) 32
//
// with the key of the job's group. The receiver takes one only if its count is higher than
// that of the last: a copy renews nothing. One side is gorun (0), the other an agent (1), so that what
// one has sent cannot be thrown back at it. From gorun it may also be the last word (2) to an agent whose stream is lost, with a relay
// that does not answer: it need not wait for the end of its lease.

const (
	datagramMagic = "gorunlse"
	datagramHead  = len(datagramMagic) + 1 + 4 + 8
	datagramSize  = datagramHead + sha256.Size
)

type side byte

const (
	fromGorun side = 0
	fromAgent side = 1
	lastWord  side = 2
)

func appendDatagram(b, key []byte, from side, agent int, count uint64) []byte {
	b = append(append(b, datagramMagic...), byte(from))
	b = binary.BigEndian.AppendUint32(b, uint32(agent))
	b = binary.BigEndian.AppendUint64(b, count)
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(b)
}

// parseDatagram reads a datagram; ok is false for any but those of the key and side.
func parseDatagram(b, key []byte, from side) (agent int, count uint64, last, ok bool) {
	if len(b) != datagramSize || string(b[:len(datagramMagic)]) != datagramMagic {
		return 0, 0, false, false
	}
	said := side(b[len(datagramMagic)])
	if last = from == fromGorun && said == lastWord; said != from && !last {
		return 0, 0, false, false
	}
	h := hmac.New(sha256.New, key)
	h.Write(b[:datagramHead])
	if !hmac.Equal(b[datagramHead:], h.Sum(nil)) {
		return 0, 0, false, false
	}
	b = b[len(datagramMagic)+1:]
	return int(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint64(b[4:]), last, true
}

// Datagrams is a socket for them, on every address of this machine. Send and its own
// goroutine, which reads, are all that use it.
type Datagrams struct {
	key     []byte
	side    side
	heard   func(agent int, last bool)
	socket  *net.UDPConn
	reading sync.WaitGroup

	mu    sync.Mutex
	mates []mate // by agent
}

// mate is the other end of an agent's datagrams.
type mate struct {
	at    netip.AddrPort // where the last one came from; the zero value: none has
	taken uint64         // the count of that
	sent  uint64
}

// ListenDatagrams makes gorun's end, for so many agents. heard is told of each that comes,
// on a goroutine of the socket; it must not block.
func ListenDatagrams(key []byte, agents int, among ports.Range, heard func(agent int)) (*Datagrams, error) {
	return openDatagrams(key, fromGorun, agents, among, func(agent int, _ bool) { heard(agent) })
}

func openDatagrams(key []byte, own side, agents int, among ports.Range, heard func(agent int, last bool)) (*Datagrams, error) {
	var socket *net.UDPConn
	err := among.Bind(func(port int) (err error) {
		socket, err = net.ListenUDP("udp", &net.UDPAddr{Port: port})
		return err
	})
	if err != nil {
		return nil, err
	}
	d := &Datagrams{key: key, side: own, heard: heard, socket: socket, mates: make([]mate, agents)}
	d.reading.Go(d.read)
	return d, nil
}

// Port is where the socket listens.
func (d *Datagrams) Port() int { return d.socket.LocalAddr().(*net.UDPAddr).Port }

// Send tells an agent, or gorun of it, that this side lives: where the last datagram came from, and at
// other addresses. Nobody is told of one that is lost.
func (d *Datagrams) Send(agent int, others ...netip.AddrPort) { d.send(d.side, agent, others) }

// Dismiss is gorun's last word to an agent.
func (d *Datagrams) Dismiss(agent int) { d.send(lastWord, agent, nil) }

func (d *Datagrams) send(from side, agent int, others []netip.AddrPort) {
	d.mu.Lock()
	m := &d.mates[agent]
	m.sent++
	at, count := m.at, m.sent
	d.mu.Unlock()
	if !at.IsValid() && len(others) == 0 {
		return
	}
	b := appendDatagram(make([]byte, 0, datagramSize), d.key, from, agent, count)
	if at.IsValid() {
		_, _ = d.socket.WriteToUDPAddrPort(b, at)
	}
	for _, other := range others {
		if other != at {
			_, _ = d.socket.WriteToUDPAddrPort(b, other)
		}
	}
}

func (d *Datagrams) read() {
	var b [datagramSize + 1]byte // one that is longer is seen to be
	for {
		n, at, err := d.socket.ReadFromUDPAddrPort(b[:])
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // an answer that nobody listens at some address
		}
		if agent, count, last, ok := parseDatagram(b[:n], d.key, fromGorun+fromAgent-d.side); ok && d.take(agent, count, netip.AddrPortFrom(at.Addr().Unmap(), at.Port())) {
			d.heard(agent, last)
		}
	}
}

// take notes a datagram, and tells whether it is new.
func (d *Datagrams) take(agent int, count uint64, at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if agent >= len(d.mates) || count <= d.mates[agent].taken {
		return false
	}
	d.mates[agent].at, d.mates[agent].taken = at, count
	return true
}

// Close ends it, and waits for its goroutine.
func (d *Datagrams) Close() {
	d.socket.Close()
	d.reading.Wait()
}
