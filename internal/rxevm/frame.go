//go:build linux

package rxevm

import (
	"encoding/gob"
	"io"
	"sync"
)

// A frame is what host and guest send each other, one gob stream a direction,
// over a virtio-serial port. Exactly one field is set, Stop and Ready excepted.
//
//	host                      guest
//	                        ◀ Ready, or Failed      once, when the devices are there
//	File ...                ▶
//	Run                     ▶
//	                        ◀ Stdout, Stderr ...
//	Stop, if at all         ▶
//	                        ◀ Done
type frame struct {
	File *file
	Run  *command
	Stop bool

	Ready  bool
	Failed string
	Stdout []byte
	Stderr []byte
	Done   *done
}

// file is a piece of a file; the first one makes it.
type file struct {
	Name  string
	Mode  uint32
	Link  string // not empty: a symbolic link
	Data  []byte
	First bool
}

type command struct {
	Args, Env []string
	Dir       string
}

// done is how a command ended.
type done struct {
	Err    string // it could not be started
	Status int    // as wait gives it
	Left   []string
	Stuck  []string // what outlived SIGKILL
}

// chunk bounds the data of a frame.
const chunk = 256 << 10

// A sender writes frames; any goroutine may.
type sender struct {
	mu  sync.Mutex
	enc *gob.Encoder
}

func newSender(w io.Writer) *sender { return &sender{enc: gob.NewEncoder(w)} }

func (s *sender) send(f frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enc.Encode(f)
}
