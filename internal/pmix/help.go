package pmix

import (
	"bytes"
	"encoding/binary"
)

// unpackHelp takes the text out of what Open MPI 4 logs when it has something to
// explain (orte_show_help), which it packs for its own launcher: the name of a file
// and of a topic in it, a byte 1, and the text. Each is a count, 1, and then for a
// string its length with the NUL at its end; numbers have four bytes, the most
// significant first.
func unpackHelp(b []byte) (text string, ok bool) {
	number := func() (n uint32) {
		if ok = len(b) >= 4; ok {
			n, b = binary.BigEndian.Uint32(b), b[4:]
		}
		return n
	}
	str := func() string {
		if number() != 1 {
			ok = false
			return ""
		}
		n := number()
		if !ok || uint64(n) > uint64(len(b)) {
			ok = false
			return ""
		}
		s := bytes.TrimSuffix(b[:n], []byte{0})
		b = b[n:]
		return string(s)
	}
	for range 2 { // file and topic
		if str(); !ok {
			return "", false
		}
	}
	if number() != 1 || len(b) == 0 || b[0] != 1 {
		return "", false
	}
	b = b[1:]
	text = str()
	return text, ok && text != ""
}
