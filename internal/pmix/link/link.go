package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// The descriptors that a helper inherits beside its standard streams.
const (
	ControlFD = 3
	ListenFD  = 4
	FirstFD   = 5
)

// FrameMax bounds a frame. Between hosts it travels in a frame of an agent,
// whose limit is the same with room for their heads.
const FrameMax = 16<<20 - 4<<10

// ErrFrame means that a stream is none of this package's.
var ErrFrame = errors.New("damaged frame")

// Kind is what a message is about.
type Kind uint8

// Kinds of messages; which fields count stands behind each.
const (
	Setup   Kind = iota + 1 // Server; Wait: another one comes before ranks may connect; ID for Ready
	Ready                   // the ranks of the Setup of that ID may connect; 0: the server runs
	Failed                  // Text: why it does not, or can go on no more
	Joined                  // Proc has connected; Wait: while another connection of it is open
	Left                    // Proc has finalized
	Abort                   // Proc wants the job to end: Status, Text
	Ask                     // Op and its fields, ID for the answer
	Answer                  // to the Ask of that ID: Status, Data, Pairs, Text
	Request                 // of another host: what has Proc put? ID for the Reply
	Reply                   // to the Request of that ID: Status, Data
	Event                   // of another host's process: Data
	Ping                    // ID; Wait: answered when no rank of the namespace Text is connected any more
	Pong                    // ID
	Log                     // Proc says Text on stream Sort of the job
	Drop                    // the ranks of the namespace Text have ended
	kinds
)

// Op is what a helper asks the job for.
type Op uint8

// Questions of a helper.
const (
	Meet      Op = iota + 1 // Procs meet (Sort, and Text is equal), and all get all Data; with Wait, a number of the job's own in Status
	Modex                   // what Proc of another host has put
	Publish                 // Pairs
	Lookup                  // Keys, for Proc; Wait until they are there
	Unpublish               // Keys of Proc
	Spawn                   // Apps, for Proc
	Notify                  // Data to all other hosts; no answer
	Table                   // all processes of the job: the answer has Jobs
	Control                 // send the signal of that Status to Procs; Wait: and kill those that have not ended after a while
	Forget                  // the Lookup of that ID, which nobody waits for any more; no answer
	ops
)

// Code is how an Ask ended.
type Code uint8

// How an Ask ended.
const (
	OK Code = iota
	NotFound
	Partial   // some of the keys of a Lookup
	Duplicate // a key that is published already
	Refused   // Text
)

// Proc is a process; Rank is pmix.Wildcard for all of its namespace.
type Proc struct {
	Space string `msgpack:"s"`
	Rank  uint32 `msgpack:"r"`
}

// Pair is a published value.
type Pair struct {
	Key   string `msgpack:"k"`
	Value []byte `msgpack:"v"`
	Text  bool   `msgpack:"t,omitempty"` // and what ranks of PMI-1 find and publish
	By    Proc   `msgpack:"b"`           // no Space: a rank of PMI-1
	Own   bool   `msgpack:"o,omitempty"` // for the publisher's namespace only
	Once  bool   `msgpack:"f,omitempty"` // gone when it was looked up
}

// Job is what a Table tells of a namespace.
type Job struct {
	Name    string    `msgpack:"n"`
	Command string    `msgpack:"c"` // of its first program
	Procs   []Process `msgpack:"p"` // by rank
}

// Process is a rank as the launcher knows it.
type Process struct {
	Host    string `msgpack:"h"`
	Program string `msgpack:"f"`
	PID     int    `msgpack:"p"` // 0: not started
	Joined  bool   `msgpack:"j,omitempty"`
	Gone    bool   `msgpack:"g,omitempty"`
	Status  int    `msgpack:"x,omitempty"` // exit status
	Signal  int    `msgpack:"s,omitempty"` // that ended it; 0: it exited
}

// App is one program of a Spawn.
type App struct {
	Argv []string    `msgpack:"a"`
	Env  []string    `msgpack:"e"`
	NP   int         `msgpack:"n"`
	Info [][2]string `msgpack:"i"` // hints of MPI
}

// Space is a namespace and where its ranks are.
type Space struct {
	Name     string  `msgpack:"n"`
	Nodes    Names   `msgpack:"h"`           // by number
	Node     int     `msgpack:"i"`           // the one that is told; Elsewhere: none of them
	NodeOf   Numbers `msgpack:"o"`           // by rank
	AppOf    Numbers `msgpack:"a"`           // by rank; nil: one application
	Universe int     `msgpack:"u"`           // slots; 0: as many as ranks
	Parent   *Proc   `msgpack:"p"`           // that spawned it; nil: none
	Restarts int     `msgpack:"r,omitempty"` // how often its job has been started before
	Session  string  `msgpack:"d,omitempty"` // directory on the host for files of MPIs; "": theirs to find
	// Programs are its applications, by number, as far as the host runs them.
	Programs []Program `msgpack:"g,omitempty"`
}

// Program is what ranks of an application run. Both are empty where no rank of the host does.
type Program struct {
	Argv []string `msgpack:"a,omitempty"`
	Dir  string   `msgpack:"d,omitempty"`
}

// Elsewhere is the Node of a namespace of which no rank is on the host.
const Elsewhere = -1

// Server is what a helper needs to begin.
type Server struct {
	Dir   string `msgpack:"d"` // for what libpmix writes
	Host  string `msgpack:"h"`
	Space Space  `msgpack:"s"`
}

// Message is a frame.
type Message struct {
	Kind   Kind     `msgpack:"k"`
	ID     uint64   `msgpack:"i,omitempty"`
	Op     Op       `msgpack:"o,omitempty"`
	Sort   uint8    `msgpack:"y,omitempty"` // of a Meet: only equals meet; of a Log
	Code   Code     `msgpack:"c,omitempty"`
	Status int      `msgpack:"x,omitempty"` // of an Abort; the number of a Meet; the signal of a Control
	Wait   bool     `msgpack:"w,omitempty"`
	Proc   Proc     `msgpack:"p,omitempty"`
	Procs  []Proc   `msgpack:"q,omitempty"`
	Keys   []string `msgpack:"y2,omitempty"`
	Pairs  []Pair   `msgpack:"a,omitempty"`
	Apps   []App    `msgpack:"b,omitempty"`
	Jobs   []Job    `msgpack:"j,omitempty"`
	Data   []byte   `msgpack:"d,omitempty"`
	Text   string   `msgpack:"t,omitempty"`
	Server *Server  `msgpack:"s,omitempty"`
}

// Probe is what gorun-pmix --probe prints, as JSON.
type Probe struct {
	Cgo     bool   `json:"cgo"`     // it was built to call libpmix
	Library string `json:"library"` // as the loader finds it
	Version string `json:"version"` // of it
	Problem string `json:"problem"` // why it cannot serve; empty: it can
}

// Append adds the frame of a message to b.
func Append(b []byte, m *Message) ([]byte, error) {
	body, err := msgpack.Marshal(m)
	if err == nil && len(body) > FrameMax {
		err = fmt.Errorf("%d bytes for one frame, the limit is %d", len(body), FrameMax)
	}
	if err != nil {
		return b, err
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...), nil
}

// Unpack reads the body of a frame.
func Unpack(body []byte) (m Message, err error) {
	// Unmarshal makes room for as many elements as a list says that it has. Skip
	// finds out first that they are there.
	if err = msgpack.NewDecoder(bytes.NewReader(body)).Skip(); err == nil {
		err = msgpack.Unmarshal(body, &m)
	}
	if err != nil {
		return Message{}, fmt.Errorf("%w: %d bytes: %w", ErrFrame, len(body), err)
	}
	if m.Kind == 0 || m.Kind >= kinds || m.Op >= ops || (m.Kind == Ask) != (m.Op != 0) || (m.Kind == Setup) != (m.Server != nil) {
		return Message{}, fmt.Errorf("%w: kind %d, op %d", ErrFrame, m.Kind, m.Op)
	}
	return m, nil
}

// Pack is a message without its length, for a frame of others.
func Pack(m *Message) ([]byte, error) {
	b, err := Append(nil, m)
	if err != nil {
		return nil, err
	}
	return b[4:], nil
}

// Decoder cuts a stream into messages. The zero value is ready.
type Decoder struct {
	rest []byte
	err  error
}

// Add takes bytes, cut anywhere, and keeps none of them.
func (d *Decoder) Add(data []byte) { d.rest = append(d.rest, data...) }

// Next is the next whole message; ok is false when there is none yet. After an
// error the stream is of no more use.
func (d *Decoder) Next() (m Message, ok bool, err error) {
	if d.err != nil {
		return Message{}, false, d.err
	}
	if len(d.rest) < 4 {
		return Message{}, false, nil
	}
	n := binary.BigEndian.Uint32(d.rest)
	if n > FrameMax {
		d.err = fmt.Errorf("%w: %d bytes, the limit is %d", ErrFrame, n, FrameMax)
		return Message{}, false, d.err
	}
	if len(d.rest) < 4+int(n) {
		return Message{}, false, nil
	}
	if m, d.err = Unpack(d.rest[4 : 4+n]); d.err != nil {
		return Message{}, false, d.err
	}
	d.rest = d.rest[4+n:]
	if len(d.rest) == 0 {
		d.rest = nil // a large one is not kept
	}
	return m, true, nil
}
