package gossip

import (
	"encoding/binary"
	"errors"
)

// A message of the fence protocol. On the wire, all numbers big-endian:
//
//	kind 1 | from 4 | epoch 8 | next 8 | { host 4 | part 4 | parts 4 | length 4 | bytes } ...
type message struct {
	kind  messageKind
	from  int    // host index of the sender
	epoch uint64 // of the fence
	next  uint64 // the lowest epoch that is not complete at the sender
	parts []part
}

type messageKind uint8

const (
	kindUp    messageKind = iota + 1 // to the parent: a subtree
	kindDown                         // to a child: everything but its subtree
	kindProbe                        // to the parent: I still wait
	kindAgain                        // to a child: I miss your subtree
	kindAck                          // to the parent: I am complete
	kindSync                         // in a push-pull: what is in flight here
	kindEnd
)

// A part is a piece of a host's contribution, at most partMax bytes.
type part struct {
	host, index, of int
	data            []byte
}

const (
	headSize = 1 + 4 + 8 + 8
	partHead = 4 * 4
	// One that is lost with its connection costs little.
	partMax    = 1 << 20
	messageMax = 4 << 20
	partsMax   = 1 << 12 // pieces of one contribution
)

var errMessage = errors.New("damaged message")

func (m *message) appendTo(b []byte) []byte {
	b = append(b, byte(m.kind))
	b = binary.BigEndian.AppendUint32(b, uint32(m.from))
	b = binary.BigEndian.AppendUint64(b, m.epoch)
	b = binary.BigEndian.AppendUint64(b, m.next)
	for _, p := range m.parts {
		b = binary.BigEndian.AppendUint32(b, uint32(p.host))
		b = binary.BigEndian.AppendUint32(b, uint32(p.index))
		b = binary.BigEndian.AppendUint32(b, uint32(p.of))
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.data)))
		b = append(b, p.data...)
	}
	return b
}

// frame is the message behind its length, 4.
func (m *message) frame() []byte {
	size := m.size()
	return m.appendTo(binary.BigEndian.AppendUint32(make([]byte, 0, 4+size), uint32(size)))
}

func (m *message) size() int {
	n := headSize
	for _, p := range m.parts {
		n += partHead + len(p.data)
	}
	return n
}

// parseMessage reads a message of a job with that many hosts. The parts are
// parts of b.
func parseMessage(b []byte, hosts int) (message, error) {
	if len(b) < headSize {
		return message{}, errMessage
	}
	m := message{
		kind:  messageKind(b[0]),
		epoch: binary.BigEndian.Uint64(b[5:]),
		next:  binary.BigEndian.Uint64(b[13:]),
	}
	from := binary.BigEndian.Uint32(b[1:])
	if m.kind == 0 || m.kind >= kindEnd || uint64(from) >= uint64(hosts) {
		return message{}, errMessage
	}
	m.from = int(from)
	for b = b[headSize:]; len(b) > 0; {
		if len(b) < partHead {
			return message{}, errMessage
		}
		host, index := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
		of, n := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
		b = b[partHead:]
		if uint64(host) >= uint64(hosts) || of == 0 || of > partsMax || index >= of || n > partMax || uint64(n) > uint64(len(b)) {
			return message{}, errMessage
		}
		m.parts = append(m.parts, part{int(host), int(index), int(of), b[:n:n]})
		b = b[n:]
	}
	return m, nil
}

// split cuts a contribution into parts.
func split(host int, data []byte) []part {
	of := max(1, (len(data)+partMax-1)/partMax)
	parts := make([]part, of)
	for i := range parts {
		parts[i] = part{host, i, of, data[i*partMax : min(len(data), (i+1)*partMax)]}
	}
	return parts
}
