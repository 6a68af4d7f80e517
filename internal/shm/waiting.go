package shm

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// WaitTextMost is how long the text of a [Wait] may be.
const WaitTextMost = 8 * waitText

// Words of the record in a rank entry.
const (
	waitSeq   = iota // odd while the owner writes the rest
	waitSince        // nanoseconds of the clock that all processes of a machine share
	waitLooked
	waitLength
	waitFixed
	waitText  = 28
	waitWords = waitFixed + waitText
)

// A Wait is what a rank says of itself when it has slept for a while: in which call it
// waits, and for which.
type Wait struct {
	Text   string
	Since  time.Duration // before now
	Looked time.Duration // before now, when the rank last looked whether the wait was over
}

// TellWait is told by a rank, of itself. The clock counts from any time that is the same in
// all processes. Text beyond WaitTextMost is left out. Only the owner writes the record, and
// all accesses are atomic: a reader that sees the same even number before and after has read
// one whole record.
func (s *Segment) TellWait(rank int, since, now time.Duration, text []byte) {
	words := &s.entries[rank].wait
	text = text[:min(len(text), WaitTextMost)]
	seq := atomic.LoadUint64(&words[waitSeq]) &^ 1
	atomic.StoreUint64(&words[waitSeq], seq+1)
	atomic.StoreUint64(&words[waitSince], uint64(since))
	atomic.StoreUint64(&words[waitLooked], uint64(now))
	atomic.StoreUint64(&words[waitLength], uint64(len(text)))
	for i := waitFixed; len(text) > 0; i++ {
		var word [8]byte
		text = text[copy(word[:], text):]
		atomic.StoreUint64(&words[i], binary.LittleEndian.Uint64(word[:]))
	}
	atomic.StoreUint64(&words[waitSeq], seq+2)
}

// Waits is what a rank has told last, if that makes sense: anybody may have written it.
func (s *Segment) Waits(rank int, now time.Duration) (w Wait, ok bool) {
	var words [waitWords]uint64
	for try := 0; ; try++ {
		for i := range words {
			words[i] = atomic.LoadUint64(&s.entries[rank].wait[i])
		}
		if seq := words[waitSeq]; seq&1 == 0 && seq == atomic.LoadUint64(&s.entries[rank].wait[waitSeq]) {
			break
		}
		if try == 100 {
			return w, false // it was stopped while it wrote, or has gone mad
		}
	}
	since, looked, n := time.Duration(words[waitSince]), time.Duration(words[waitLooked]), words[waitLength]
	if words[waitSeq] == 0 || n == 0 || n > WaitTextMost || since < 0 || since > looked || looked > now {
		return w, false
	}
	var text []byte
	for _, word := range words[waitFixed:] {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	text = bytes.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:n])
	return Wait{Text: string(text), Since: now - since, Looked: now - looked}, true
}
