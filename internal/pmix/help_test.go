package pmix

import (
	"encoding/binary"
	"testing"
)

func packed(flag byte, words ...string) (b []byte) {
	for i, w := range words {
		if i == 2 {
			b = append(binary.BigEndian.AppendUint32(b, 1), flag)
		}
		b = binary.BigEndian.AppendUint32(b, 1)
		b = binary.BigEndian.AppendUint32(b, uint32(len(w)+1))
		b = append(append(b, w...), 0)
	}
	return b
}

func TestUnpackHelp(t *testing.T) {
	whole := packed(1, "help-mpi-api.txt", "mpi-abort", "MPI_ABORT was invoked\n")
	if text, ok := unpackHelp(whole); !ok || text != "MPI_ABORT was invoked\n" {
		t.Errorf("got %q, %v", text, ok)
	}
	for n := range whole {
		if text, ok := unpackHelp(whole[:n]); ok {
			t.Errorf("%d bytes of %d: got %q", n, len(whole), text)
		}
	}
	for name, b := range map[string][]byte{
		"no text":          packed(0, "f", "t", "text"),
		"an empty text":    packed(1, "f", "t", ""),
		"two strings":      append([]byte{0, 0, 0, 2}, whole[4:]...),
		"a long string":    append([]byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, whole[8:]...),
		"nothing":          nil,
		"something else's": []byte("some text of another kind that is long enough"),
	} {
		if text, ok := unpackHelp(b); ok {
			t.Errorf("%s: got %q", name, text)
		}
	}
}

func FuzzUnpackHelp(f *testing.F) {
	f.Add(packed(1, "file", "topic", "text"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if text, ok := unpackHelp(b); ok && (text == "" || len(text) > len(b)) {
			t.Errorf("%d bytes gave %q", len(b), text)
		}
	})
}
