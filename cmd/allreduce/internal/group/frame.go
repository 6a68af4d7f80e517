package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// A frame is a header in msgpack, and for some kinds a payload of raw bytes:
//
//	4 bytes, little-endian  length of the header, 1 to maxHeader
//	4 bytes, little-endian  length of the payload
//	header, payload
type header struct {
	Kind kind   `msgpack:"k"`
	Op   uint64 `msgpack:"o,omitempty"` // number of the operation
	Step int    `msgpack:"s,omitempty"` // of the algorithm

	Hello   *hello   `msgpack:"hello,omitempty"`
	Answer  *answer  `msgpack:"answer,omitempty"`
	Records []record `msgpack:"records,omitempty"`
	Start   *start   `msgpack:"start,omitempty"`
	Text    string   `msgpack:"text,omitempty"` // of kindStatus and kindBye
}

type kind uint8

const (
	kindHello  kind = iota + 1 // the first of each side
	kindAnswer                 // of the side that accepted, behind its hello
	kindRecord                 // between participants: what is known of members
	kindStatus                 // from a daemon to its clients: what the group waits for
	kindStart                  // the group is complete
	kindData                   // between participants: payload of a step of an operation
	kindVector                 // from a client: its vector, or its digest in a barrier
	kindResult                 // to a client: the result, or the end of a barrier
	kindBye                    // no frame follows; with a text: why this end has failed
)

// maxHeader bounds a header: a record of a large group is the longest.
const maxHeader = 1 << 20

// errFrame: the bytes are no frame of this protocol.
var errFrame = errors.New("no frame of this protocol")

const prefixLen = 8

// maxDigest is the length of a digest of results, which may be longer than a vector.
const maxDigest = 32

// appendHead appends what comes before the payload.
func appendHead(b []byte, h *header, payload int) ([]byte, error) {
	m, err := pack.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(m) > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes, expected at most %d", len(m), maxHeader)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m)))
	b = binary.LittleEndian.AppendUint32(b, uint32(payload))
	return append(b, m...), nil
}

// writeFrame writes a frame in one call where the kernel takes it.
func writeFrame(w io.Writer, h *header, payload []byte) error {
	head, err := appendHead(make([]byte, 0, 64), h, len(payload))
	if err != nil {
		return err
	}
	if conn, ok := w.(*net.TCPConn); ok && len(payload) > 0 {
		buffers := net.Buffers{head, payload}
		_, err := buffers.WriteTo(conn)
		return err
	}
	// TLS has no gathered write: a short payload goes with its header in one record.
	if len(payload) <= 8<<10 {
		_, err := w.Write(append(head, payload...))
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err = w.Write(payload)
	return err
}

// readHead reads a header, and how long the payload is, which is at most most for a kind
// that has one. The payload is to be read by the caller.
func readHead(r io.Reader, most int) (h header, payload int, err error) {
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return h, 0, err
	}
	n, payload := int(binary.LittleEndian.Uint32(prefix[:])), int(binary.LittleEndian.Uint32(prefix[4:]))
	if n < 1 || n > maxHeader || payload > most {
		return h, 0, fmt.Errorf("%w: a header of %d bytes, a payload of %d", errFrame, n, payload)
	}
	b := make([]byte, min(n, 4096))
	for got := 0; ; {
		// A length that lies costs no more memory than bytes that come.
		m, err := io.ReadFull(r, b[got:])
		if got += m; err != nil {
			return h, 0, unexpected(err)
		}
		if got == n {
			break
		}
		b = append(b, make([]byte, min(n-got, len(b)))...)
	}
	if err := pack.Unmarshal(b, &h); err != nil {
		return header{}, 0, fmt.Errorf("%w: %w", errFrame, err)
	}
	if h.Kind < kindHello || h.Kind > kindBye {
		return header{}, 0, fmt.Errorf("%w: kind %d", errFrame, h.Kind)
	}
	carries := h.Kind == kindData || h.Kind == kindVector || h.Kind == kindResult
	if payload != 0 && !carries {
		return header{}, 0, fmt.Errorf("%w: a payload of %d bytes behind kind %d", errFrame, payload, h.Kind)
	}
	return h, payload, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
