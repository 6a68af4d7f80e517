package p2p

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Mode says when a send is complete.
type Mode uint8

const (
	Standard    Mode = iota // the memory is the caller's again (MPI_Send)
	Synchronous             // a receive has taken the message too (MPI_Ssend)
	Ready                   // Standard, by a caller that knows that the receive is posted (MPI_Rsend)
)

// ErrCancelled is what a receive ends with that was cancelled.
var ErrCancelled = errors.New("the operation was cancelled")

// A Status tells what a receive took, or what a probe found.
type Status struct {
	Source int // in the world
	Tag    int
	Bytes  int // a probe: of the message; a receive: of them, what fitted
}

// A TruncateError reports a message that did not fit. A caller that knows the
// buffer's element type adds it.
type TruncateError struct {
	Message, Buffer int // bytes

	Type string
	Elem int
}

func (e *TruncateError) Error() string {
	return fmt.Sprintf("found a message of %d bytes, expected %d at most", e.Message, e.Buffer)
}

// A TypeError reports a message of another type than its receive. Types are numbers of the caller,
// which knows their names and adds them.
type TypeError struct {
	Source, Tag     int // of the message; its source in the world
	Message, Buffer uint8
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("a message of type %d from rank %d with tag %d met a receive of type %d", e.Message, e.Source, e.Tag, e.Buffer)
}

// differ tells whether data of one type must not be received as another; 0 is any.
func differ(a, b uint8) bool { return a != b && a != 0 && b != 0 }

// A state is how far an operation is.
//
//	send      queued --its message leaves--> done
//	             |--an announcement leaves--> sent --answer--> done
//	receive   posted --short message--> done
//	             |--announcement--> moving --last byte--> done
//
// A send to the rank itself that waits for its receive is sent. A failed peer
// takes all operations that concern it to done.
type state uint8

const (
	queued state = iota
	sent
	posted
	moving
	done
)

// An Op is a send or a receive under way. It is the engine's: Finish takes it
// back.
type Op struct {
	match.Receive[*Op] // of a receive; of a send the envelope alone
	state              state
	mode               Mode
	detached           bool // nobody calls Finish: the engine does when it is done
	landed             bool // it has left for a zone
	err                error
	st                 Status

	buf   []byte // the caller's memory
	mr    rdma.MR
	group []int32 // the ranks that may send it, when the source is open

	peer   *peer   // of a send; of a receive from when it moves
	number uint32  // in Engine.ops, while sent or moving
	temp   rdma.MR // registered for this operation

	// Of an announcement to a mapped peer; of one from there offer and generation.
	ticket     int32 // and 1; 0: none
	generation uint32
	offer      *ticket

	// While moving.
	id      uint32 // the sender's number
	address uint64
	rkey    uint32
	lkey    uint32
	length  int // bytes to read
	asked   int // of them, asked for
	pending int // reads that are not complete
	split   split

	// Over dynamic connections.
	word     uint32 // of the announcement, where its sender says so
	checking bool   // the message is here, and the word is read

	next *Op // in peer.queue, or recycled
}

// long tells of a send that is sent whether it was announced, and the peer may read its memory.
func (o *Op) long() bool { return !o.landed && len(o.buf) > o.peer.eager }

// Done tells whether the operation is over. It makes no progress.
func (o *Op) Done() bool { return o.state == done }

// ops is the operations under way: by number those that a peer may answer, and in matches
// the receives that are posted and the messages that are kept.
type ops struct {
	memory
	table[Op]
	matches *match.Queue[*Op, arrival]
	spare   *Op // recycled
}

// newOp gives a recycled or a new operation.
func (ops *ops) newOp() *Op {
	o := ops.spare
	if o == nil {
		o = new(Op)
		o.Value = o
		return o
	}
	ops.spare = o.next
	o.next = nil
	return o
}

// finish is Engine.Finish.
func (ops *ops) finish(o *Op) (Status, error) {
	if o.state != done {
		panic("p2p: Finish of an operation that is not done")
	}
	st, err := o.st, o.err
	ops.recycle(o)
	return st, err
}

func (ops *ops) recycle(o *Op) {
	o.buf = nil
	if o.mr != nil {
		o.mr = nil
	}
	if o.group != nil {
		o.group = nil
	}
	if o.peer != nil {
		o.peer = nil
	}
	if o.err != nil {
		o.err = nil
	}
	if o.offer != nil {
		o.offer, o.split = nil, split{}
	}
	o.st.Source, o.st.Tag, o.st.Bytes = 0, 0, 0
	o.detached, o.mode, o.landed = false, Standard, false
	o.next = ops.spare
	ops.spare = o
}

// complete ends an operation.
func (ops *ops) complete(o *Op, err error) {
	o.state, o.err = done, err
	if o.detached {
		ops.recycle(o)
	}
}

// drop ends the registration that was made for an operation.
func (o *Op) drop() error {
	if o.temp == nil {
		return nil
	}
	err := o.temp.Close()
	o.temp = nil
	return err
}

// Cancel ends a receive that no message has matched: it is done, with
// ErrCancelled. It is false for other operations, which go their way.
func (e *Engine) Cancel(o *Op) bool {
	if o.state != posted || !e.self.matches.Cancel(&o.Receive) {
		return false
	}
	e.self.complete(o, ErrCancelled)
	return true
}
