package calls

import (
	"bytes"
	"errors"
	"math"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// Kind says what an event is.
type Kind uint8

// Kinds of events.
const (
	Other      Kind = iota // a call of which nothing more is known
	Message                // a send, a receive or both
	Collective             // a blocking one
	Begun                  // a started or persistent one begins
	Arrived                // a further message that a call has received: it lies within the call behind it
)

// A Recorder writes the record of this process. Its methods are called between the begin and the end of a call of the rank.
type Recorder struct {
	file
	mem    []byte
	inside func(function string) bool // a function of the library whose calls these are
	clock  clock
	call   event
	used   bool // call has a message in it
	known  [512]known
}

// known is what is known of a program counter.
type known struct {
	pc uintptr
	at int32  // the site, or insideLibrary
	op string // of an inner one: the outermost of its functions
}

const insideLibrary = -1

// Create makes the record of a rank, in a file that does not exist yet.
func Create(path string, rank, size int, inside func(function string) bool) (*Recorder, error) {
	if size > ranksMost {
		size = 0 // peers are not told apart
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n := length(size)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err != nil { // a store into a hole of a full disk would kill the rank
		return nil, errors.Join(&os.PathError{Op: "fallocate", Path: path, Err: err}, os.Remove(path))
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	r := &Recorder{mem: mem, inside: inside}
	r.file, _ = view(mem, size) // of the right length
	if r.clock, err = newClock(); err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	r.head.version, r.head.size, r.head.rank, r.head.begin, r.head.sites = version, uint32(size), uint32(rank), r.clock.begin, 1
	r.texts[0].set("further calls", "", "")
	r.head.magic = magic
	return r, nil
}

// Concurrent notes that the program's goroutines call at the same time, whose calls are not recorded.
func (r *Recorder) Concurrent() { r.head.concurrent = 1 }

// Begin is the begin of a call.
func (r *Recorder) Begin() {
	at := r.site()
	r.call = event{start: r.clock.now(), site: uint16(at), to: -1, from: -1}
	r.used = false
	r.head.since = r.call.start
	r.head.current = uint64(at) + 1
}

// As gives the call a name, wherever it was made: a function that runs the whole program makes it.
func (r *Recorder) As(op string) {
	at := r.newSite(op, "", "")
	r.call.site, r.head.current = uint16(at), uint64(at)+1
}

// Sent notes that the call sends to a rank of the world, and Received that it has received from one.
func (r *Recorder) Sent(to, bytes, tag int) {
	number := r.exchanged(to, bytes, true)
	if r.used && r.call.to >= 0 {
		r.arrived()
	}
	c := &r.call
	c.kind, c.to, c.out, c.sent, c.group, r.used = Message, int32(to), short(bytes), number, uint32(tag), true
}

// Received is Sent of a receive.
func (r *Recorder) Received(from, bytes, tag int) {
	number := r.exchanged(from, bytes, false)
	if r.used && r.call.from >= 0 {
		r.arrived()
	}
	c := &r.call
	c.kind, c.from, c.in, c.got, c.group, r.used = Message, int32(from), short(bytes), number, uint32(tag), true
}

// exchanged counts a message, and tells how many there were before with that rank.
func (r *Recorder) exchanged(with, bytes int, out bool) (number uint32) {
	r.sizes[min(bits.Len(uint(bytes)), Sizes-1)]++
	s := &r.sums[r.call.site]
	if out {
		s.out += uint64(bytes)
	} else {
		s.in += uint64(bytes)
	}
	if with < 0 || with >= len(r.peers) {
		return math.MaxUint32
	}
	p := &r.peers[with]
	if out {
		number = uint32(p.sent)
		p.sent, p.sentBytes = p.sent+1, p.sentBytes+uint64(bytes)
	} else {
		number = uint32(p.got)
		p.got, p.gotBytes = p.got+1, p.gotBytes+uint64(bytes)
	}
	return number
}

// arrived makes an event of the message that the call has so far: it has another one.
func (r *Recorder) arrived() {
	e := r.call
	e.kind, e.start, e.took = Arrived, r.clock.now(), 0
	r.put(&e)
	r.call.to, r.call.from, r.call.out, r.call.in = -1, -1, 0, 0
}

// Collective notes that the call is a collective of a communicator, the number-th one there, with so many bytes out and in. begun: it is
// only started.
func (r *Recorder) Collective(communicator uint32, number, out, in int, begun bool) {
	s := &r.sums[r.call.site]
	s.out, s.in = s.out+uint64(out), s.in+uint64(in)
	r.sizes[min(bits.Len(uint(max(out, in))), Sizes-1)]++
	c := &r.call
	c.kind, c.group, c.sent, c.out, c.in = Collective, communicator, uint32(number), short(out), short(in)
	if begun {
		c.kind = Begun
	}
}

// Part notes that a collective has bytes for one rank of the world. It is no message: their number tells which receive is of which send.
func (r *Recorder) Part(to, bytes int) {
	if to >= 0 && to < len(r.peers) {
		r.peers[to].sentBytes += uint64(bytes)
	}
}

// near is how close calls of one site that only ask are taken for one event.
const near = 20_000

// End is the end of a call.
func (r *Recorder) End() {
	c := &r.call
	now := r.clock.now()
	c.took = now - c.start
	s := &r.sums[c.site]
	s.count++
	s.total, s.longest = s.total+c.took, max(s.longest, c.took)
	r.head.current = 0
	if n := r.head.events; n > 0 && c.kind == Other { // loops of Test would fill the ring
		if last := &r.ring[(n-1)%Ring]; last.kind == Other && last.site == c.site && c.start-last.start-last.took < near {
			last.took = now - last.start
			return
		}
	}
	r.put(c)
}

func (r *Recorder) put(e *event) {
	n := r.head.events
	r.ring[n%Ring] = *e
	arch.StoreRelease64(&r.head.events, n+1)
}

// Finalized ends the record.
func (r *Recorder) Finalized(did RDMA) {
	r.head.rdma = did.counts()
	copy(r.head.device[:len(r.head.device)-1], did.Device)
	r.head.current, r.head.end = 0, r.clock.now()
}

// Close gives the memory back. The file stays.
func (r *Recorder) Close() error {
	mem := r.mem
	r.mem, r.file = nil, file{}
	return unix.Munmap(mem)
}

// short is a number of bytes as an event keeps it.
func short(n int) uint32 { return uint32(min(uint(n), math.MaxUint32)) }

// site is where the program has made the call: the innermost function that is not the library's.
func (r *Recorder) site() int {
	var pcs [24]uintptr
	n := arch.Callers(pcs[:8]) // which reach the program, as a rule
	op := ""
	for i := 0; ; i++ {
		if i == 8 && n == 8 {
			n = arch.Callers(pcs[:])
		}
		if i >= n {
			return 0
		}
		pc := pcs[i]
		k := &r.known[pc>>1%uintptr(len(r.known))]
		if k.pc != pc || k.at == insideLibrary && k.op == "" {
			r.learn(k, pc, op)
		}
		if k.at != insideLibrary {
			return int(k.at)
		}
		op = k.op
	}
}

// learn finds out what a program counter is. op is the function of the library that the one before is in.
func (r *Recorder) learn(k *known, pc uintptr, op string) {
	var pcs [64]uintptr
	n := runtime.Callers(2, pcs[:]) // which tells inlined functions apart: each is there, behind the one that is inlined into it
	here := pcs[:n]
	if at := slices.Index(here, pc); at >= 0 {
		here = here[at:]
	} else { // of a wrapper, or too deep
		here = append(pcs[:0], pc)
	}
	frames := runtime.CallersFrames(here)
	for {
		f, more := frames.Next()
		if !r.inside(f.Function) {
			*k = known{pc, int32(r.newSite(operation(op), f.Function, f.File+":"+strconv.Itoa(f.Line))), ""}
			return
		}
		op = f.Function
		if !more || f.Func != nil { // the function that has the frame: what follows is of another program counter
			*k = known{pc, insideLibrary, op}
			return
		}
	}
}

// newSite is the site with a text.
func (r *Recorder) newSite(op, function, at string) int {
	var s site
	s.set(op, function, at)
	n := int(r.head.sites)
	for i := 1; i < n; i++ {
		if t := &r.texts[i]; t.length == s.length && bytes.Equal(t.text[:t.length], s.text[:s.length]) {
			return i
		}
	}
	if n == Sites {
		return 0
	}
	r.texts[n] = s
	arch.StoreRelease64(&r.head.sites, uint64(n+1))
	return n
}

// set keeps the ends of what is too long: they say more.
func (s *site) set(op, function, at string) {
	function = function[strings.LastIndexByte(function, '/')+1:]
	last := func(text string, most int) string { return text[max(0, len(text)-most):] }
	op, function = last(op, 40), last(function, 80)
	text := op + "\n" + function + "\n" + last(at, textMost-3-len(op)-len(function)) + "\n"
	s.length = uint64(copy(s.text[:], text))
}

// operation is the name of a function of the library as its users know it: "Allreduce" of gorun/rank.Allreduce[...], "Put" of
// gorun/rank.(*Win[...]).Put.
func operation(function string) string {
	function = strings.ReplaceAll(function, "[...]", "") // as the runtime writes arguments of types
	return function[strings.LastIndexByte(function, '.')+1:]
}
