package pmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/pmi/pmitest"
	"golang.org/x/sys/unix"
)

// A testJob serves ranks on socketpairs, as a launcher does: one goroutine per
// rank reads, one lock holds each host's engine.
type testJob struct {
	t     *testing.T
	hosts []*testHost
	envs  []Env // by rank

	mu     sync.Mutex
	events []Event // all but replies and names, in order of arrival
	names  names
	seen   chan struct{}

	wg     sync.WaitGroup
	cancel context.CancelFunc
	ctx    context.Context
}

type testHost struct {
	job    *testJob
	store  Store
	mu     sync.Mutex
	engine *Engine
	socks  map[int]*os.File
}

// testUniverse is what the engines of test jobs know of the job's size.
const testUniverse = 100

// newTestJob places rank r on hostOf[r].
func newTestJob(t *testing.T, hostOf []int, stores []*pmitest.Store) *testJob {
	t.Helper()
	j := &testJob{t: t, seen: make(chan struct{}, 1000)}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	for h, store := range stores {
		var ranks, apps []int
		for r, host := range hostOf {
			if host == h {
				ranks, apps = append(ranks, r), append(apps, r%3)
			}
		}
		j.hosts = append(j.hosts, &testHost{job: j, store: store, socks: map[int]*os.File{},
			engine: NewEngine(EngineConfig{KVSName: "job", Size: len(hostOf), Ranks: ranks, Mapping: Mapping(hostOf), AppNum: apps, Universe: testUniverse})})
	}
	for r, host := range hostOf {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.SetNonblock(fds[0], true)
		h := j.hosts[host]
		h.socks[r] = os.NewFile(uintptr(fds[0]), fmt.Sprint("rank ", r))
		j.envs = append(j.envs, Env{FD: fds[1], Rank: r, Size: len(hostOf), Cards: true})
	}
	for r, host := range hostOf {
		j.wg.Add(1)
		go j.hosts[host].serve(r)
	}
	t.Cleanup(j.close)
	return j
}

func (j *testJob) close() {
	j.cancel()
	for _, h := range j.hosts {
		h.mu.Lock()
		for _, s := range h.socks {
			s.Close()
		}
		h.mu.Unlock()
		h.store.Close()
	}
	j.wg.Wait()
}

func (h *testHost) serve(rank int) {
	defer h.job.wg.Done()
	buf := make([]byte, 4096)
	sock := h.socks[rank]
	for {
		n, err := sock.Read(buf)
		h.mu.Lock()
		if n > 0 {
			h.handle(h.engine.Receive(rank, buf[:n]))
		}
		if err != nil {
			h.handle(h.engine.Disconnect(rank))
		}
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (h *testHost) handle(events []Event) {
	for _, ev := range events {
		switch ev := ev.(type) {
		case Reply:
			h.socks[ev.Rank].Write(ev.Data)
			continue
		case Name:
			h.job.mu.Lock()
			a := h.job.names.do(ev.Query)
			h.job.mu.Unlock()
			h.handle(h.engine.NameDone(ev.Rank, a))
			continue
		case Spawn:
			h.handle(h.engine.SpawnDone(ev.Rank, SpawnAnswer{Err: "this test starts nothing"}))
		case Fence:
			h.job.wg.Add(1)
			go func() {
				defer h.job.wg.Done()
				all, err := h.store.Fence(h.job.ctx, ev.Epoch, ev.Contribution)
				h.mu.Lock()
				defer h.mu.Unlock()
				if err != nil {
					h.handle(h.engine.FenceFailed(ev.Epoch, err))
				} else {
					h.handle(h.engine.FenceDone(ev.Epoch, all))
				}
			}()
		}
		h.job.mu.Lock()
		h.job.events = append(h.job.events, ev)
		h.job.mu.Unlock()
		h.job.seen <- struct{}{}
	}
}

// ranks runs f for each rank at once, with a client.
func (j *testJob) ranks(f func(c *Client) error) {
	j.t.Helper()
	errs := make([]error, len(j.envs))
	var wg sync.WaitGroup
	for r, env := range j.envs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := Dial(env)
			if err == nil {
				err = f(c)
				c.Close()
			}
			errs[r] = err
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		j.t.Error(err)
	}
}

// violation waits for the first violation that no other host's can have caused:
// a failed fence may be told before what it failed of.
func (j *testJob) violation(ctx context.Context) Violation {
	j.t.Helper()
	return await(ctx, j, func(v Violation) bool { return !errors.Is(v.Err, ErrFence) })
}

// await is the first event of a type that is wanted.
func await[E Event](ctx context.Context, j *testJob, wanted func(E) bool) E {
	j.t.Helper()
	for {
		j.mu.Lock()
		for _, ev := range j.events {
			if e, ok := ev.(E); ok && wanted(e) {
				j.mu.Unlock()
				return e
			}
		}
		j.mu.Unlock()
		select {
		case <-j.seen:
		case <-ctx.Done():
			j.t.Fatalf("no %T has come", *new(E))
		}
	}
}
