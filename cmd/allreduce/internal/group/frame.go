package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// A frame is its length in 4 bytes, little-endian, and so many of msgpack: 1 to maxFrame.
type frame struct {
	Kind    kind     `msgpack:"k"`
	Hello   *hello   `msgpack:"hello,omitempty"`
	Answer  *answer  `msgpack:"answer,omitempty"`
	Records []record `msgpack:"records,omitempty"`
	Start   *start   `msgpack:"start,omitempty"`
	Text    string   `msgpack:"text,omitempty"` // of kindBye
}

type kind uint8

const (
	kindHello  kind = iota + 1 // the first of each side
	kindAnswer                 // of the side that accepted, behind its hello
	kindRecord                 // what is known of participants
	kindStart                  // the group is complete
	kindBye                    // no frame follows; with a text: why this end has failed
)

// maxFrame bounds a frame: the records of a large group are the longest.
const maxFrame = 1 << 20

// errFrame: the bytes are no frame of this protocol.
var errFrame = errors.New("no frame of this protocol")

// writeFrame writes a frame in one call.
func writeFrame(w io.Writer, f *frame) error {
	m, err := pack.Marshal(f)
	if err != nil {
		return err
	}
	if len(m) > maxFrame {
		return fmt.Errorf("a frame of %d bytes, expected at most %d", len(m), maxFrame)
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(m))), m...))
	return err
}

// readFrame reads a frame. A length that lies costs no more memory than bytes that come.
func readFrame(r io.Reader) (f frame, err error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return f, err
	}
	n := int64(binary.LittleEndian.Uint32(prefix[:]))
	if n < 1 || n > maxFrame {
		return f, fmt.Errorf("%w: one of %d bytes", errFrame, n)
	}
	b, err := io.ReadAll(io.LimitReader(r, n))
	if err == nil && int64(len(b)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return f, err
	}
	if err := pack.Unmarshal(b, &f); err != nil {
		return frame{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	if f.Kind < kindHello || f.Kind > kindBye {
		return frame{}, fmt.Errorf("%w: kind %d", errFrame, f.Kind)
	}
	return f, nil
}
