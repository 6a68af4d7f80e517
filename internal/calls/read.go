package calls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
)

// A Rank is the record of a rank, as it travels from its host.
type Rank struct {
	Rank, Size int
	Group      int // 0: the job's own ranks; else the spawned group
	Host       string
	Begin, End int64 // nanoseconds of the host's clock: the first call began, the last one ended
	Finalized  bool
	Concurrent bool // its goroutines call at the same time, and their calls are not recorded
	Calls      []Call
	Peers      []Peer
	Sizes      []uint64 // operations with less than 1<<k bytes, by k
	Events     []Event  // the last ones
	Dropped    uint64   // events before them
	Current    int      // the call that the rank was in at its end, an index of Calls; -1: in none
	CPU        time.Duration
	Memory     int64 // most that it had at a time, in bytes
	RDMA       *RDMA // nil: the rank has not finalized, or its MPI does not say
}

// RDMA is what a rank's device did from Init to Finalize, as package rdma counts: requests that were executed and their bytes.
type RDMA struct {
	Device                                     string
	Writes, WriteBytes, Reads, ReadBytes       uint64
	Sends, SendBytes, Atomics, Retries, Errors uint64
}

const rdmaCounts = 9

func (d *RDMA) counts() [rdmaCounts]uint64 {
	return [...]uint64{d.Writes, d.WriteBytes, d.Reads, d.ReadBytes, d.Sends, d.SendBytes, d.Atomics, d.Retries, d.Errors}
}

// String has what there was.
func (d *RDMA) String() string {
	var parts []string
	add := func(n uint64, what string, bytes uint64) {
		if n == 1 {
			what = strings.TrimSuffix(what, "s")
		}
		if n > 0 && bytes > 0 {
			what += fmt.Sprintf(" of %d B", bytes)
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(d.Writes, "writes", d.WriteBytes)
	add(d.Reads, "reads", d.ReadBytes)
	add(d.Sends, "sends", d.SendBytes)
	add(d.Atomics, "atomics", 0)
	add(d.Retries, "repetitions", 0)
	add(d.Errors, "errors", 0)
	if parts == nil {
		parts = []string{"nothing"}
	}
	return d.Device + ": " + strings.Join(parts, ", ")
}

// A Call is what was called at one place.
type Call struct {
	Op, Function, File string
	Line               int
	Count, Out, In     uint64
	Total, Longest     time.Duration
}

// At is the place for people: "main.go:31", or "solver:exchange" where the line is not known.
func (c *Call) At() string {
	at := c.File[strings.LastIndexByte(c.File, '/')+1:]
	switch {
	case c.File == "":
		return ""
	case c.Line == 0:
		return at + ":" + c.Function
	}
	return at + ":" + strconv.Itoa(c.Line)
}

// A Peer is what went to and came from a rank of the world by messages, and to it by v forms.
type Peer struct {
	Rank                           int
	Sent, SentBytes, Got, GotBytes uint64
}

// An Event is a call.
type Event struct {
	Start, Took int64
	Call        int // an index of Rank.Calls
	Kind        Kind
	Group       uint32 // the communicator of a collective; the tag of a message
	To, From    int32  // -1: none
	Out, In     uint32
	Sent, Got   uint32 // the number of the message to, and from, that rank; Sent: of the collective
}

// Pack makes bytes of a record, and Unpack a record of them.
func (r *Rank) Pack() ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseArrayEncodedStructs(true) // without the names of fields
	err := enc.Encode(r)
	return b.Bytes(), err
}

// Unpack reads what Pack has made. The calls of events exist.
func Unpack(data []byte) (*Rank, error) {
	r := new(Rank)
	if err := msgpack.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.Current >= len(r.Calls) || slices.ContainsFunc(r.Events, func(e Event) bool { return e.Call < 0 || e.Call >= len(r.Calls) }) {
		return nil, errNoRecord
	}
	return r, nil
}

// Find is the function and the line of an address in a file of a program, as lines.Finder has it.
type Find func(file string, offset uint64) (function, source string, line int)

// Read reads a record. most is how many events it keeps, the last ones; ended is when the rank has, 0 if that is not known. find has the lines of
// programs in C; without it they are addresses.
func Read(path string, most int, ended int64, find Find) (*Rank, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mem, err := io.ReadAll(io.LimitReader(f, int64(length(ranksMost))+1))
	if err != nil {
		return nil, err
	}
	r, err := parse(mem, most, ended, find)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func open(path string) (*os.File, error) {
	// Where others may write, as beside ranks of root that become another user, it may be a FIFO that nobody writes, or a link.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errors.Join(fmt.Errorf("%s: %w", path, errNoRecord), err)
	}
	return f, nil
}

// parts are the call, the function and the place, if all are there.
func (s *site) parts() []string {
	return strings.SplitN(string(s.text[:min(s.length, textMost)]), "\n", 4)
}

// Live is what the record in a file says while its rank lives: how many calls it has made, and which one it is in, "" for none, and
// since when by the clock of the record. ok is false where there is no record.
func Live(path string) (calls uint64, in string, since int64, ok bool) {
	f, err := open(path)
	if err != nil {
		return 0, "", 0, false
	}
	defer f.Close()
	mem := make([]byte, headerSize)
	if _, err := f.ReadAt(mem, 0); err != nil {
		return 0, "", 0, false
	}
	h := headOf(mem)
	if h.magic != magic || h.version != version {
		return 0, "", 0, false
	}
	if at := h.current - 1; at < Sites { // 0 is none
		text := make([]byte, siteSize)
		if _, err := f.ReadAt(text, int64(headerSize)+int64(at)*int64(siteSize)); err == nil {
			in = siteOf(text).parts()[0]
		}
	}
	return h.events, in, h.since, true
}

var errNoRecord = errors.New("it is no record of calls of this version")

func parse(mem []byte, most int, ended int64, find Find) (*Rank, error) {
	if len(mem) < length(0) {
		return nil, errNoRecord
	}
	f, err := view(mem[:length(0)], 0)
	if err == nil && f.head.magic == magic && f.head.version == version && f.head.size <= ranksMost {
		f, err = view(mem, int(f.head.size))
	} else if err == nil {
		err = errNoRecord
	}
	if err != nil {
		return nil, err
	}
	h := f.head
	r := &Rank{Rank: int(h.rank), Size: int(h.size), Begin: h.begin, End: max(h.begin, h.end), Finalized: h.end != 0, Concurrent: h.concurrent != 0, Current: -1}
	if n := bytes.IndexByte(h.device[:], 0); n > 0 {
		c := h.rdma
		r.RDMA = &RDMA{strings.ToValidUTF8(string(h.device[:n]), "?"), c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]}
	}
	index := make([]int, Sites) // of a site in Calls
	sites := min(atomic.LoadUint64(&h.sites), Sites)
	for i := range int(sites) {
		s := &f.sums[i]
		current := h.current == uint64(i)+1
		if s.count == 0 && !current {
			index[i] = -1
			continue
		}
		if index[i] = len(r.Calls); current {
			r.Current = index[i]
		}
		t := &f.texts[i]
		part := t.parts()
		part = append(part, "", "", "")
		file, line := part[2], 0
		if at := strings.LastIndexByte(file, ':'); at >= 0 {
			line, _ = strconv.Atoi(file[at+1:])
			file = file[:at]
		}
		if part[1] == "" && file != "" && find != nil { // of a program in C
			part[1], file, line = find(file, uint64(line))
		}
		r.Calls = append(r.Calls, Call{Op: part[0], Function: part[1], File: file, Line: line, Count: s.count, Out: s.out, In: s.in, Total: time.Duration(s.total), Longest: time.Duration(s.longest)})
	}
	for i, p := range f.peers {
		if p != (peer{}) {
			r.Peers = append(r.Peers, Peer{i, p.sent, p.sentBytes, p.got, p.gotBytes})
		}
	}
	r.Sizes = append(r.Sizes, f.sizes[:]...)
	events := atomic.LoadUint64(&h.events)
	kept := min(events, Ring, uint64(max(most, 0)))
	r.Dropped = events - kept
	for n := events - kept; n < events; n++ {
		e := &f.ring[n%Ring]
		if int(e.site) >= len(index) || index[e.site] < 0 || e.took < 0 || e.start < h.begin {
			continue // of a file that was spoilt
		}
		r.Events = append(r.Events, Event{Start: e.start, Took: e.took, Call: index[e.site], Kind: e.kind, Group: e.group, To: e.to, From: e.from, Out: e.out, In: e.in, Sent: e.sent, Got: e.got})
		r.End = max(r.End, e.start+e.took)
	}
	if r.Current >= 0 {
		r.End = max(r.End, h.since, ended)
		r.Events = append(r.Events, Event{Start: h.since, Took: r.End - h.since, Call: r.Current, To: -1, From: -1})
	}
	return r, nil
}
