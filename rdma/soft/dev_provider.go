package soft

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
)

// privateArena is the size of the arena of a provider without a segment.
const privateArena = 64 << 20

// A Provider is the software device of one rank. It owns an arena, and all objects of its contexts.
type Provider struct {
	cfg     Config
	host    string
	segment *shm.Segment
	private bool // segment is ours to close
	names   []string
	layout  layout
	tables  // of the arena
	head    *arenaHeader
	gids    [gidTable]rdma.GID
	pid     int       // of this process
	probe   *[16]byte // the nonce where peers that know its address can check that they reach this process
	self    *peer
	maps    mappings

	// quiet: this process takes part in the membarrier of those that
	// deregister, so marks may be plain stores. Set once it is true.
	quiet atomic.Bool

	inquested atomic.Uint64 // when it last asked whether holders of responders are alive

	byKey table[region]    // index of the key -> region
	byQPN table[queuePair] // index of the number -> queue pair

	byShared table[sharedQueue]     // index -> shared queue
	byCQ     table[completionQueue] // index -> completion queue

	mu        sync.Mutex // guards what follows; taken after all locks of queues
	heap      *allocator
	free      free
	nextPD    uint32
	contexts  []*context
	peers     map[rdma.GID]*peer
	closed    bool
	abandoned uint64 // bytes of the arena that a stuck peer may still write to

	domains      [xrcDomains]openDomain        // XRC domains, with their places in the arena's header
	sharedBlocks map[sharedShape][]sharedBlock // memory of shared queues that are closed

	work  progress
	watch watch
	tcp   atomic.Pointer[network] // nil without TCP; it may come later, see tcp_rescue.go
}

// free are the numbers that objects may get, and how often each was given.
type free struct {
	keys, qps, cqs, srqs indexes

	keyBytes []uint8  // per region index, the last key byte used
	lives    []uint16 // per queue index, the last generation of its number
	srqLives []uint8  // the same per shared queue
}

// New creates the provider of a rank of the segment.
func New(cfg Config) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Provider{cfg: cfg, host: endpointHost(cfg.Host), segment: cfg.Segment, peers: make(map[rdma.GID]*peer)}
	p.names = append(p.names, cfg.Names...)
	if len(p.names) == 0 {
		p.names = []string{"soft0"}
	}
	if p.segment == nil {
		s, err := shm.NewLocal(shm.Geometry{Ranks: 1, ArenaSize: privateArena})
		if err != nil {
			return nil, err
		}
		p.segment, p.private = s, true
		if p.host == "" {
			p.host = "private " + rand.Text()
		}
	}
	if err := p.takeArena(); err != nil {
		p.closeSegment()
		return nil, err
	}
	if cfg.Secret != nil {
		n, err := newNetwork(p, cfg.Secret, cfg.Secure)
		if err != nil {
			p.leaveArena()
			p.closeSegment()
			return nil, err
		}
		p.tcp.Store(n)
	}
	p.work.init(p)
	p.watch.p = p
	p.allowReach()
	p.self = p.newSelf()
	return p, nil
}

func (p *Provider) closeSegment() {
	if p.private {
		_ = p.segment.Close()
	}
}

// takeArena formats the rank's arena.
func (p *Provider) takeArena() error {
	arena, err := p.segment.Arena(p.cfg.Rank)
	if err != nil {
		return err
	}
	l, err := layoutFor(uint64(len(arena)))
	if err != nil {
		return &rdma.OpError{Op: "soft.New", Detail: err.Error(), Err: rdma.ErrNoMemory}
	}
	p.layout, p.tables = l, tablesOf(arena, l)
	p.head = at[arenaHeader](arena, 0)
	if p.head == nil || p.regions == nil || p.queues == nil || p.ready == nil || p.cqs == nil || p.shared == nil || p.responders == nil {
		return fmt.Errorf("the arena at %#x is not aligned", addressOf(arena))
	}

	p.pid = os.Getpid()
	pid := uint32(p.pid)
	was := atomic.LoadUint32(&p.head.owner)
	if was == pid || was > 0 && was <= math.MaxInt32 && processAlive(int(was)) || !atomic.CompareAndSwapUint32(&p.head.owner, was, pid) {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("rank %d of the segment already has a provider, in process %d", p.cfg.Rank, was), Err: rdma.ErrBusy}
	}
	// What an earlier owner left is cleared; the rest was never touched.
	t := p.head.touched
	atomic.StoreUint64(&p.head.magic, 0)
	clear(p.regions[:min(int(t.regions), len(p.regions))])
	clear(p.queues[:min(int(t.queues), len(p.queues))])
	clear(p.ready[:min(int(t.queues), len(p.ready))])
	clear(p.cqs[:min(int(t.completions), len(p.cqs))])
	clear(p.shared[:min(int(t.shared), len(p.shared))])
	clear(p.responders[:min(int(t.responders), len(p.responders))])
	p.head.responders = uint32(len(p.responders))
	if n := p.cfg.DCResponders; n > 0 {
		p.head.responders = uint32(min(n, len(p.responders)))
	}
	atomic.StoreUint32(&p.head.wanted, 0)
	atomic.StoreUint32(&p.head.port, 0)
	atomic.StoreUint32(&p.head.refused, 0)
	p.head.network = networkNamespace()
	dirty := min(max(t.heap, l.heapAt), l.size)
	p.head.touched = touched{heap: dirty}
	for i := range p.head.domains {
		atomic.StoreUint64(&p.head.domains[i], 0)
	}
	p.heap = newAllocator(l.heapAt, l.size, dirty)
	p.free.keys = newIndexes(l.regions)
	p.free.qps = newIndexes(l.queues)
	p.free.cqs = newIndexes(l.completions)
	p.free.srqs = newIndexes(l.shared)

	// The nonce is to be unique, not secret: a cryptographic source takes longer to
	// set up than all else here.
	p.probe = new([16]byte)
	binary.LittleEndian.PutUint64(p.probe[:], mathrand.Uint64())
	binary.LittleEndian.PutUint64(p.probe[8:], mathrand.Uint64())
	p.head.base = addressOf(arena)
	p.head.nonce = *p.probe
	if p.refused() {
		atomic.StoreUint32(&p.head.refused, 1)
	}
	p.gids = gidsOf(p.host, p.cfg.Rank, *p.probe)
	atomic.StoreUint64(&p.head.magic, arenaMagic)
	return nil
}

func (p *Provider) leaveArena() {
	atomic.StoreUint64(&p.head.magic, 0)
	atomic.StoreUint32(&p.head.owner, 0)
}

// Name is "soft".
func (p *Provider) Name() string { return "soft" }

// Devices returns the devices of Config.Names.
func (p *Provider) Devices() ([]rdma.Device, error) {
	ds := make([]rdma.Device, len(p.names))
	for i, n := range p.names {
		ds[i] = &device{p: p, name: n, node: nodeGUID(n)}
	}
	return ds, nil
}

// Close stops the provider's goroutines and TCP connections, and frees its arena.
// It fails with ErrBusy while contexts are open. A second Close does nothing.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if n := len(p.contexts); n > 0 {
		p.mu.Unlock()
		return &rdma.OpError{Op: "soft close", Detail: fmt.Sprintf("%d of its contexts are open: close them first", n), Err: rdma.ErrBusy}
	}
	p.closed = true
	peers := p.peers
	p.peers = nil
	p.mu.Unlock()
	p.watch.stop()
	p.work.stop()
	if n := p.tcp.Load(); n != nil {
		n.close()
	}
	for _, peer := range peers {
		peer.close()
	}
	p.maps.close()
	p.leaveArena()
	if p.private {
		return p.segment.Close()
	}
	runtime.KeepAlive(p.probe)
	return nil
}

// allocate takes n zeroed bytes of the arena's heap.
func (p *Provider) allocate(n uint64) (offset uint64, mem []byte, err error) {
	p.mu.Lock()
	at, clean, ok := p.heap.alloc(n)
	if ok {
		p.head.touched.heap = p.heap.dirty
	}
	free := p.layout.size - p.layout.heapAt - p.heap.inUse
	p.mu.Unlock()
	if !ok {
		why := ""
		if limit := shm.Limit(); limit != math.MaxUint64 {
			why = fmt.Sprintf(" (ulimit -v or -f allows %d MiB, which keeps the arena small: more is needed)", limit>>20)
		}
		return 0, nil, fmt.Errorf("%d bytes, %d of the arena's %d are free: %w%s", n, free, p.layout.size, rdma.ErrNoMemory, why)
	}
	mem = p.arena[at : at+n : at+n]
	if !clean {
		clear(mem)
	}
	return at, mem, nil
}

// release gives back what allocate returned.
func (p *Provider) release(offset, n uint64) {
	discard(p.arena[offset : offset+n])
	p.mu.Lock()
	p.heap.give(offset, n)
	p.mu.Unlock()
}

// checkQuiet finds out whether this process has been registered for the
// membarrier of those that deregister. Package shm registers it, in its own time.
func (p *Provider) checkQuiet() {
	if !p.quiet.Load() && !arch.RaceEnabled && arch.MembarrierRegistered() {
		p.quiet.Store(true)
	}
}
