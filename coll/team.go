package coll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
)

// A TeamConfig configures a member's team.
type TeamConfig struct {
	Rank, Size int

	// Mesh has the connections of the members: member i is peer Members[i]
	// of the mesh (nil: peer i). Teams of one process share a mesh.
	Mesh    *Mesh
	Members []int
	// Host names the host of this member: members with the same name share one.
	Host string

	// Waiter waits for peers. It serves one call at a time.
	Waiter *wait.Waiter
	// Exchange gathers a few bytes of every member, by rank. NewTeam calls it once.
	Exchange func(ctx context.Context, mine []byte) ([][]byte, error)
	// Progress advances other traffic of the process while a call waits. nil: there is none.
	Progress func()
	// PeerDead reports whether a member is known to have died. It is called
	// about once a millisecond while a call waits. nil: unknown.
	PeerDead func(member int) bool
	// ODP is a region of the whole address space with remote read and write access; nil if the
	// device has none. Without it, ordinary memory that peers access is registered for each call.
	ODP rdma.MR

	// Offload is where started calls of registered memory may be lent to; nil: nowhere. The
	// team is told of its end by the segment.
	Offload *Offload

	// Table selects algorithms and sizes; nil: the built-in table.
	Table *Table

	// slots is the messages a peer may be ahead, a power of two; 0 means 32, and less
	// where the control region would exceed 1 MiB: 16 from 5 members on, 8 from 9. Only
	// tests set it.
	slots int
}

// What a Table's 0 means.
const (
	defaultEager = 8 << 10
	defaultSlots = 8 // at least
	manySlots    = 32
	defaultChunk = 128 << 10
	defaultPiece = 16 << 10
	// defaultCached is the last cache of a group of cores of today's servers; larger ones lose little by it.
	defaultCached = 32 << 20
	// defaultSentPiece is that of two members that do not map each other. With twice as many it is
	// half as long, down to leastSentPiece, so that the scratch stays small.
	defaultSentPiece, leastSentPiece = 256 << 10, 64 << 10
	// leastSlots is what the plans need to run without waiting on each
	// other: half of it may be owed.
	leastSlots = 8
	mostSlots  = 1 << 12
	// mostRegion bounds a control region, leastEager notwithstanding; that of
	// a team of more than crowd members is smaller, by as much as they are more.
	mostRegion = 1 << 20
	// crowd is how many members a team has at least that keeps its memory
	// small: as many as have control regions of 16 MiB in all. It gives
	// scratch back beyond keptScratch at the end of each call.
	crowd       = 16
	keptScratch = 128 << 10
	leastEager  = 128
)

// regionFor bounds the control region of a team: with 300 members on a host lanes of
// 17 KiB would be 1.5 GiB. In small teams the payloads fill mostRegion, and headers
// come on top.
func regionFor(size int) int {
	if size < crowd {
		return mostRegion + mostRegion/16
	}
	return mostRegion * crowd / size
}

// slotsFor is how far ahead of each other the members of a team may be: the root of a
// broadcast need not wait for anybody. Where ranks share CPUs each full ring costs a
// switch, and a small team can have deep ones.
func slotsFor(size, eager int) int {
	slots := defaultSlots
	for slots < manySlots {
		if l := newLayout(size, 2*slots, eager, false); l.size() > regionFor(size) {
			break
		}
		slots *= 2
	}
	return slots
}

// eagerFor keeps the control region of a team small.
func eagerFor(size, slots, eager int) int {
	for eager > leastEager {
		if l := newLayout(size, slots, eager, false); l.size() <= regionFor(size) {
			break
		}
		eager /= 2
	}
	return eager
}

// tuningFor is the tuning of a team of so many members, which have so many slots if that is not 0.
func tuningFor(table *Table, size, slots int) tuning {
	eager := cmp.Or(table.EagerBytes, defaultEager)
	slots = cmp.Or(slots, slotsFor(size, eager))
	return tuning{slots: slots, eager: eagerFor(size, slots, eager), chunk: cmp.Or(table.ChunkBytes, defaultChunk), piece: cmp.Or(table.PieceBytes, defaultPiece), cached: defaultCached}
}

// sent makes it that of members of whom some do not map each other.
func (t *tuning) sent(table *Table, size int) {
	if size < crowd { // of a large team the scratch stays small
		piece := defaultSentPiece
		for members := 2; members < size && piece > leastSentPiece; members *= 2 {
			piece /= 2
		}
		t.piece = cmp.Or(table.PieceBytes, piece)
	}
}

func (cfg *TeamConfig) validate() (tuning, error) {
	cfg.Table = cmp.Or(cfg.Table, &builtIn)
	t := tuningFor(cfg.Table, cfg.Size, cfg.slots)
	if err := cfg.Table.validate(); err != nil {
		return t, err
	}
	switch {
	case cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return t, fmt.Errorf("rank %d of %d", cfg.Rank, cfg.Size)
	case cfg.Mesh == nil || cfg.Waiter == nil:
		return t, errors.New("no Mesh, or no Waiter")
	case t.slots < leastSlots || t.slots > mostSlots || t.slots&(t.slots-1) != 0:
		return t, fmt.Errorf("%d slots: expected a power of two from %d to %d", t.slots, leastSlots, mostSlots)
	case t.eager < descriptorLen || t.chunk < 1 || t.piece < 1:
		return t, fmt.Errorf("eager %d, chunk %d, piece %d bytes: expected at least %d, 1, 1", t.eager, t.chunk, t.piece, descriptorLen)
	}
	return t, nil
}

// A Team is a group of ranks that make collective calls. The package
// documentation describes its states and concurrent use.
type Team struct {
	rank, size int
	mesh       *Mesh
	waiter     *wait.Waiter
	progress   func()
	dead       func(int) bool
	odp        rdma.MR
	tuning     tuning
	host       uint64 // hash of its name
	table      *Table
	selection  *selection
	cache      cache

	region rdma.MR // control region, see layout
	layout layout
	remote bool     // some peer's memory is not mapped
	words  []uint64 // the region, to load from
	bytes  []byte   // the region
	peers  []peer   // by member

	scratch rdma.MR // grows between calls
	arena   arena
	machine *machine
	most    int  // bytes that the machine moves in a row: anyNumber, or besideBytes
	beside  bool // Step runs the machine
	left    bool // the farewell has begun, or is in the backlog

	busy    uint32                // busyNot, busyCall, busyMoving
	revoked atomic.Pointer[error] // by Revoke, while a call runs
	state   error                 // nil while open: *Error when broken, ErrClosed
	call    *invocation           // the one that runs or ran last: own, or that of a Pending
	own     invocation            // of the blocking calls
	waiting waiting
	backlog backlog

	offloading offloading
	faults     faults
}

// A peer is what a team knows of a member.
type peer struct {
	at    int // its number in the mesh
	queue *queue
	lane  uint64 // where our lane in its control region is
	rkey  uint32
	put   uint64 // the queue's request count of our last put or get

	polled bool // what it writes gets here only as this process polls
	maps   bool // its memory is mapped, or will be
	// The memory of a peer that maps, and our lane there; nil before the first use, see Team.reach.
	memory rdma.PeerMemory
	bytes  []byte
	words  []uint64

	informed bool // has been told of a fault
}

// NewTeam makes the team's control region and exchanges its address with
// the other members. All members call it, with the same sizes.
func NewTeam(ctx context.Context, cfg TeamConfig) (*Team, error) {
	if cfg.Exchange == nil && cfg.Size > 1 {
		return nil, errors.New("new team: no Exchange")
	}
	t, intro, err := PrepareTeam(cfg)
	if err != nil || t.size == 1 {
		return t, err
	}
	intros, err := cfg.Exchange(ctx, intro)
	if err != nil {
		t.mesh.keep(t.region)
		return nil, fmt.Errorf("new team: %w", err)
	}
	if err := t.Join(intros); err != nil {
		return nil, err
	}
	return t, nil
}

// PrepareTeam is NewTeam up to the exchange, for callers that exchange intros themselves: all other
// members must get intro. The team cannot be used before [Team.Join]. TeamConfig.Exchange is ignored.
func PrepareTeam(cfg TeamConfig) (t *Team, intro []byte, err error) {
	if t, err = newTeam(&cfg); err != nil {
		return nil, nil, fmt.Errorf("new team: %w", err)
	}
	if t.size > 1 {
		intro = t.intro().bytes()
	}
	return t, intro, nil
}

// Join is the rest of NewTeam after PrepareTeam. intros are the intros of all members.
func (t *Team) Join(intros [][]byte) error {
	if t.size == 1 {
		return nil
	}
	if err := t.meet(intros); err != nil {
		// A member that got further may write here.
		t.mesh.keep(t.region)
		t.shut()
		return fmt.Errorf("new team: %w", err)
	}
	return nil
}

func newTeam(cfg *TeamConfig) (*Team, error) {
	tuning, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	t := &Team{rank: cfg.Rank, size: cfg.Size, mesh: cfg.Mesh, waiter: cfg.Waiter, progress: cfg.Progress,
		dead: cfg.PeerDead, odp: cfg.ODP, tuning: tuning, table: cfg.Table, peers: make([]peer, cfg.Size)}
	t.selection, t.host = cfg.Table.selection(cfg.Size), hashOf(cfg.Host)
	at := func(member int) int { return member }
	if cfg.Members != nil {
		if len(cfg.Members) < cfg.Size {
			return nil, fmt.Errorf("%d Members for a team of %d", len(cfg.Members), cfg.Size)
		}
		at = func(member int) int { return cfg.Members[member] }
	}
	for i := range t.peers {
		if i == t.rank {
			continue
		}
		to := at(i)
		if to < 0 || to >= len(t.mesh.queues) || to == at(t.rank) {
			return nil, fmt.Errorf("no queue pair to member %d", i)
		}
		t.peers[i].at, t.peers[i].queue = to, &t.mesh.queues[to]
	}
	inline := tuning.eager
	if t.size > 1 {
		inline = min(inline, t.mesh.dialer.Inline())
	}
	t.machine, t.most = newMachine((*wire)(t), t.size, tuning.slots), anyNumber
	t.cache.total = &t.machine.count
	t.waiting.team, t.faults.team, t.offloading.team = t, t, t
	t.call = &t.own
	t.layout = newLayout(t.size, tuning.slots, tuning.eager, inline < tuning.eager)
	if t.size == 1 {
		return t, nil
	}
	length := t.layout.size()
	if t.offloading.to = cfg.Offload; cfg.Offload != nil {
		length = t.layout.desk() + deskSize(t.size)
	}
	if t.region = t.mesh.reuse(length); t.region == nil {
		t.region, err = t.mesh.pd.AllocMR(length, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
		if err != nil {
			return nil, fmt.Errorf("control region of %d bytes: %w", length, err)
		}
	}
	t.bytes = t.region.Bytes()[:length]
	if t.words, err = wordsOf(t.bytes); err != nil {
		return nil, errors.Join(err, t.region.Close())
	}
	return t, nil
}

// intro is what the member says of itself.
func (t *Team) intro() intro {
	mine := intro{members: uint32(t.size), rank: uint32(t.rank), slots: uint32(t.tuning.slots), eager: uint32(t.tuning.eager),
		chunk: uint32(t.tuning.chunk), piece: uint32(t.tuning.piece),
		selection: t.selection.hash(), host: t.host, addr: t.region.Addr(), rkey: t.region.RKey()}
	if t.mesh.self != nil { // which peers it maps is known when it has their intros
		mine.maps = 1
	}
	if t.waiter.Crowded() {
		mine.crowded = 1
	}
	return mine
}

// meet takes in the members' intros.
func (t *Team) meet(intros [][]byte) error {
	mine := t.intro()
	if len(intros) != t.size {
		return fmt.Errorf("exchange gave %d intros for a team of %d", len(intros), t.size)
	}
	all, names := true, make([]uint64, t.size)
	for i, b := range intros {
		theirs, err := readIntro(b)
		if err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
		expected := mine
		expected.rank, expected.host, expected.addr, expected.rkey, expected.maps, expected.crowded = uint32(i), theirs.host, theirs.addr, theirs.rkey, theirs.maps, theirs.crowded
		names[i] = theirs.host
		all = all && theirs.maps != 0
		t.selection.crowded = t.selection.crowded || theirs.crowded != 0
		if theirs.selection != expected.selection {
			return fmt.Errorf("member %d made the team with another selection table or other algorithms than member %d", i, t.rank)
		}
		if theirs != expected {
			return fmt.Errorf("member %d made the team with other sizes: %+v, here %+v", i, theirs, mine)
		}
		t.peers[i].lane = theirs.addr + uint64(t.rank*t.layout.lane)
		t.peers[i].rkey = theirs.rkey
	}
	t.mapPeers(all && t.mapsAll())
	if !t.tuning.mapped {
		t.tuning.hosts = placementOf(names)
		t.selection.hosts = t.tuning.hosts
	}
	return nil
}

// Size is the number of members.
func (t *Team) Size() int { return t.size }

// Rank is this member's number in the team.
func (t *Team) Rank() int { return t.rank }

// Waits returns the call that this member is in, its number, and the member that
// it waits for, or -1 for no particular one. ok is false if the member is in no
// blocking call. It is called by the goroutine that runs the call, while it waits.
func (t *Team) Waits() (kind Kind, number uint64, peer int, ok bool) {
	if t.state != nil || t.call == nil || t.machine == nil || atomic.LoadUint32(&t.busy) != busyCall {
		return 0, 0, -1, false
	}
	return t.call.call.Kind, t.machine.count.Calls + 1, t.waitsOn(), true
}

// Counters returns the counters of the team. It must not be called while a call of the team runs.
func (t *Team) Counters() Counters {
	t.cache.count()
	return t.machine.count
}

// Missed reports whether another member is in a call that this member, which
// is in none, has not made, as far as it knows. It reads one or more words of each member.
func (t *Team) Missed() bool {
	if t.offloading.lent > 0 {
		return false // the daemon counts the messages
	}
	for i := range t.peers {
		if i == t.rank {
			continue
		}
		next := t.machine.channels[i].awaited + 1
		header := atomic.LoadUint64(&t.words[t.layout.header(i, t.machine.slotOf(next))/8])
		if _, waits := t.faults.waitedFor(i); waits || sequenceOf(header) == next {
			return true
		}
	}
	return false
}

// Close ends the use of the team. It is not collective and does not wait. Peers may still
// write to the control region, so the mesh keeps it until it is closed itself; [Team.Free] frees
// it at once, as Close does after StartFree. Started calls that are not complete fail, and Close returns ErrPending.
func (t *Team) Close() error {
	if !t.occupy(busyCall) {
		return &Error{Op: "close", Rank: t.rank, Peer: -1, Err: ErrBusy}
	}
	defer t.vacate()
	if t.state == ErrClosed {
		return nil
	}
	var err error
	over := t.left && t.state == nil && t.backlog.empty()
	if t.left && t.backlog.count.Load() == 1 { // only the farewell: others have not left
		t.backlog.pop(ErrClosed)
	}
	if !t.backlog.empty() {
		pending := t.breakUp(-1, faultLocal, ErrPending)
		pending.Op = "close"
		t.abandon()
		err = pending
	}
	t.offloading.stop()
	for _, mr := range []rdma.MR{t.scratch, t.region} {
		switch {
		case mr == nil:
		case !over: // peers may still write to it
			t.mesh.keep(mr)
		case mr == t.region && t.offloading.to == nil: // the daemon knows teams by their regions
			err = errors.Join(err, t.mesh.spare(mr))
		default:
			err = errors.Join(err, mr.Close())
		}
	}
	t.shut()
	return err
}

// Free ends the use of the team in all members, as a collective call. If it returns nil, no peer
// writes to this member any more: the mesh has the control region for another team, and other memory
// is freed. Otherwise it has done the same as Close.
func (t *Team) Free(ctx context.Context) error {
	if err := t.enter(farewell); err != nil {
		if errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed) {
			return err
		}
		return errors.Join(err, t.Close())
	}
	if !t.backlog.empty() {
		t.vacate()
		return t.Close()
	}
	t.call = &t.own
	t.call.call = Call{Kind: farewell, Algorithm: Direct, Rank: t.rank, Size: t.size, Elem: 1}
	t.left = true
	err := t.execute(ctx)
	t.vacate()
	return errors.Join(err, t.Close())
}

// StartFree starts a Free behind the calls that were started before, and does not wait. No call may follow it
// but Close, which frees the memory if the Pending is over without an error.
func (t *Team) StartFree() (*Pending, error) {
	if err := t.enter(farewell); err != nil {
		return nil, err
	}
	defer t.vacate()
	p := t.backlog.idle()
	p.invocation = invocation{call: Call{Kind: farewell, Algorithm: Direct, Rank: t.rank, Size: t.size, Elem: 1}}
	p.deferred, t.left = false, true
	t.backlog.push(p)
	if t.backlog.deferred == 0 {
		t.advance(false)
	}
	return p, nil
}

func (t *Team) shut() {
	t.offloading.stop()
	t.state = ErrClosed
	t.cache.count()
	t.region, t.scratch, t.bytes, t.words = nil, nil, nil, nil
	t.cache = cache{total: t.cache.total}
}
