package wait

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

const childFlag = "--wait-child"

// TestMain plays the other rank when it is asked to: --wait-child HOW ROUNDS,
// with the segment as descriptor 3.
func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != childFlag {
		os.Exit(m.Run())
	}
	if err := playChild(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func playChild(how, rounds string) error {
	n, err := strconv.ParseUint(rounds, 10, 64)
	if err != nil {
		return err
	}
	s, err := shm.Open(3)
	if err != nil {
		return err
	}
	p, err := newPlayer(s, 1, how)
	if err != nil {
		return err
	}
	if err := p.play(context.Background(), 1, n); err != nil {
		return err
	}
	if p.lost != 0 {
		return fmt.Errorf("%d wake-ups were lost", p.lost)
	}
	return s.Close()
}

// The first words of a rank's arena.
const (
	ballAt  = 0  // how often this rank has played the ball; the peer waits for it
	stampAt = 64 // when it last had rung for it, in nanoseconds of the wall clock
	rungAt  = 72 // and for which play
	loadAt  = 128
	// loadLines is how many cache lines travel with the ball. As on the hot
	// path their stores are in front of the ball's in the store buffer, which
	// gives the look at the peer's bell time to overtake it.
	loadLines = 8
)

// A player is one of two ranks that play a ball to each other: store what comes
// with it, store the ball, ring, wait.
type player struct {
	waiter     *Waiter
	bell, peer *shm.Bell
	ball       *uint64
	theirs     word
	load       [loadLines]*uint64
	theirLoad  [loadLines]*uint64
	stamp      *int64
	theirStamp *int64
	rung       *uint64
	theirRung  *uint64
	fickle     bool // parks after a random number of misses
	lost       int
	prepared   int
	slept      int
}

// newPlayer sets up a rank. how: "park" parks almost at once, at a place in the
// peer's play that differs each time; "run" is the plain process waiter, and
// "goroutine" the scheduler's, parking almost at once.
func newPlayer(s *shm.Segment, rank int, how string) (*player, error) {
	mine, err := s.Arena(rank)
	if err != nil {
		return nil, err
	}
	theirs, err := s.Arena(1 - rank)
	if err != nil {
		return nil, err
	}
	p := &player{
		bell: s.Bell(rank), peer: s.Bell(1 - rank),
		ball: wordAt(mine, ballAt), theirs: word{v: wordAt(theirs, ballAt)},
		stamp: signedAt(mine, stampAt), theirStamp: signedAt(theirs, stampAt),
		rung: wordAt(mine, rungAt), theirRung: wordAt(theirs, rungAt),
	}
	for i := range loadLines {
		p.load[i], p.theirLoad[i] = wordAt(mine, loadAt+i*arch.CacheLine), wordAt(theirs, loadAt+i*arch.CacheLine)
	}
	c := Config{Sleeper: s.Bell(rank)}
	if how != "run" {
		p.fickle = true
		c = Config{Sleeper: p, IdleAfter: 1, Scheduler: how == "goroutine"}
	}
	p.waiter = New(c)
	return p, nil
}

// play plays from round first to last.
func (p *player) play(ctx context.Context, first, last uint64) error {
	for i := first; i <= last; i++ {
		if p.fickle {
			p.waiter.spins, p.waiter.yields = rand.IntN(64), 1
			for range rand.IntN(64) {
				arch.Pause()
			}
		}
		if p.fickle {
			for _, l := range p.load {
				arch.StoreRelease64(l, i)
			}
		}
		arch.StoreRelease64(p.ball, i)
		p.peer.Ring()
		if p.fickle {
			atomic.StoreInt64(p.stamp, time.Now().UnixNano())
			atomic.StoreUint64(p.rung, i)
		}
		p.theirs.want = i
		if err := p.waiter.Wait(ctx, &p.theirs); err != nil {
			return err
		}
		if p.fickle {
			for k, l := range p.theirLoad {
				// The peer may have gone on to its next play.
				if got := atomic.LoadUint64(l); got != i && got != i+1 {
					return fmt.Errorf("play %d: line %d holds %d, want %d or %d", i, k, got, i, i+1)
				}
			}
		}
	}
	return nil
}

func (p *player) Prepare() { p.prepared++; p.bell.Prepare() }
func (p *player) Cancel()  { p.bell.Cancel() }

// Sleep counts a lost wake-up: the peer has rung for the ball long ago, and only the end of the
// sleep tells. Between both it may have lost its CPU.
func (p *player) Sleep(ns int64) (woken bool) {
	p.slept++
	woken = p.bell.Sleep(ns)
	if !woken && p.theirs.Ready() && atomic.LoadUint64(p.theirRung) >= p.theirs.want && time.Now().UnixNano()-atomic.LoadInt64(p.theirStamp) > int64(sleepLeast)/2 {
		p.lost++
	}
	return woken
}

// playTime bounds a play; the million takes 2-8 s on 2 CPUs of one's own.
const playTime = 4 * time.Minute

// startChild starts rank 1 on the segment.
func startChild(t testing.TB, s *shm.Segment, how string, rounds uint64) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(s.FD()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.CommandContext(testenv.Deadline(t, playTime), self, childFlag, how, strconv.FormatUint(rounds, 10))
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = new(bytes.Buffer)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// handOvers is a million, fewer where each takes longer.
func handOvers() uint64 {
	if testing.Short() || arch.RaceEnabled {
		return 20_000
	}
	return 1_000_000
}

func TestNoLostWakeUpAcrossProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	s, err := shm.Create(shm.Geometry{Ranks: 2, ArenaSize: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rounds := handOvers() / 2
	p, err := newPlayer(s, 0, "park")
	if err != nil {
		t.Fatal(err)
	}
	cmd := startChild(t, s, "park", rounds)
	ctx, cancel := context.WithCancel(testenv.Deadline(t, playTime))
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			cancel() // the parent would wait for a peer that is gone
		}
		ended <- err
	}()
	if err := p.play(ctx, 1, rounds); err != nil {
		t.Errorf("parent's play: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("child: %v: %s", err, cmd.Stderr)
	}
	if p.lost != 0 {
		t.Errorf("%d of %d wake-ups were lost, want 0", p.lost, rounds)
	}
	t.Logf("%d hand-overs; the parent prepared %d times and slept %d times", 2*rounds, p.prepared, p.slept)
}

func TestNoLostWakeUpAcrossGoroutines(t *testing.T) {
	testenv.NoLeaks(t)
	s := segment(t, 2)
	rounds := handOvers() / 2
	ctx := testenv.Deadline(t, playTime)
	var players [2]*player
	var wg sync.WaitGroup
	for rank := range players {
		p, err := newPlayer(s, rank, "goroutine")
		if err != nil {
			t.Fatal(err)
		}
		players[rank] = p
		wg.Go(func() {
			if err := p.play(ctx, 1, rounds); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	for rank, p := range players {
		if p.lost != 0 {
			t.Errorf("rank %d: %d of %d wake-ups were lost, want 0", rank, p.lost, rounds)
		}
		t.Logf("%d hand-overs; rank %d prepared %d times and slept %d times", 2*rounds, rank, p.prepared, p.slept)
	}
}

// idler is never ready, and notes the CPU time used when it has been so for
// settle.
type idler struct {
	t      testing.TB
	settle time.Time
	polls  int
	before time.Duration
}

func (c *idler) Ready() bool {
	c.polls++
	if c.before == 0 && time.Now().After(c.settle) {
		c.before = cpuTime(c.t)
	}
	return false
}

// A rank that has waited for 50 ms uses next to no CPU.
func TestIdleCPU(t *testing.T) {
	const settle, idle, most = 50 * time.Millisecond, 300 * time.Millisecond, 10 * time.Millisecond
	shared, err := shm.Create(shm.Geometry{Ranks: 1, ArenaSize: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, m := range modes {
		if m.config.IdleAfter == math.MaxInt64 {
			continue
		}
		for _, s := range []*shm.Segment{shared, segment(t, 1)} {
			kind := "futex"
			if s.FD() < 0 {
				kind = "channel"
			}
			t.Run(m.name+" on a "+kind, func(t *testing.T) {
				w := waiter(m.config, m.bell, s, 0)
				// Not a test of how the runtime divides what it has
				// to do in the background: the best of five.
				least := time.Duration(math.MaxInt64)
				for range 5 {
					ctx, cancel := context.WithTimeout(context.Background(), idle)
					c := &idler{t: t, settle: time.Now().Add(settle)}
					if err := w.Wait(ctx, c); err == nil {
						t.Error("Wait for what never comes: got no error")
					}
					cancel()
					if least = min(least, cpuTime(t)-c.before); least <= most {
						break
					}
				}
				t.Logf("%v of CPU in %v", least, idle-settle)
				if least > most {
					t.Errorf("a rank that has waited for %v used %v of CPU in the next %v, want at most %v", settle, least, idle-settle, most)
				}
			})
		}
	}
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// One op is there and back between two processes.
func BenchmarkPingPong(b *testing.B) {
	for _, how := range []string{"run", "park"} {
		b.Run(how, func(b *testing.B) {
			s, err := shm.Create(shm.Geometry{Ranks: 2, ArenaSize: 1 << 16})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			const warm = 10_000
			rounds := uint64(b.N) + warm
			cmd := startChild(b, s, how, rounds)
			p, err := newPlayer(s, 0, how)
			if err != nil {
				b.Fatal(err)
			}
			if err := p.play(context.Background(), 1, warm); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if err := p.play(context.Background(), warm+1, rounds); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := cmd.Wait(); err != nil {
				b.Fatalf("child: %v: %s", err, cmd.Stderr)
			}
		})
	}
}
