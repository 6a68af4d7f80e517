package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/hashicorp/memberlist"
)

// cutter is a transport whose connections end in the midst of what is written to them, by seed,
// once it is switched on. It counts and keeps what is written to those of the tree.
type cutter struct {
	memberlist.Transport

	mu    sync.Mutex
	rng   *rand.Rand
	every int // bytes of the tree between two cuts, in the mean; 0: none
	cuts  int
	dials map[string]int // by magic
	sent  bytes.Buffer   // on the first connection of the tree
}

func newCutter(t *testing.T, seed int64) *cutter {
	t.Helper()
	under, err := listen(memberConfigOfTests())
	if err != nil {
		t.Fatal(err)
	}
	return &cutter{Transport: under, rng: rand.New(rand.NewSource(seed)), dials: make(map[string]int)}
}

func (c *cutter) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := c.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, of: c}, nil
}

// dialed is how many connections were made for a purpose.
func (c *cutter) dialed(magic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials[magic]
}

type cutConn struct {
	net.Conn
	of    *cutter
	magic string
	first bool // of the tree
}

func (c *cutConn) Write(b []byte) (int, error) {
	of := c.of
	of.mu.Lock()
	if c.magic == "" {
		c.magic = string(b[:magicSize])
		of.dials[c.magic]++
		c.first = of.dials[c.magic] == 1
	}
	if c.magic == magicFence && c.first {
		of.sent.Write(b)
	}
	goes := len(b)
	if c.magic == magicFence && of.every > 0 && of.rng.Intn(of.every) < len(b) {
		goes = of.rng.Intn(len(b))
		of.cuts++
	}
	of.mu.Unlock()
	n, err := c.Conn.Write(b[:goes])
	if goes < len(b) && err == nil {
		c.Conn.Close()
		err = errors.New("cut")
	}
	return n, err
}

// Connections of the tree that end in the midst of a message cost time and nothing else.
func TestConnectionsAreCut(t *testing.T) {
	for seed := range int64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, 60*time.Second)
			const hosts, wanted = 5, 8
			cutters := make([]*cutter, hosts)
			nodes := listenAll(t, hosts, func(i int, cfg *Config) {
				cutters[i] = newCutter(t, seed*100+int64(i))
				cfg.Transport = cutters[i]
			})
			joinAll(t, ctx, nodes)
			for _, c := range cutters {
				c.mu.Lock()
				c.every = 40 << 10
				c.mu.Unlock()
			}
			cuts, epoch := 0, 0
			for cuts < wanted {
				epoch++
				if err := fenceAll(ctx, nodes, uint64(epoch), testData(epoch, 2000)); err != nil {
					t.Fatal(err)
				}
				cuts = 0
				for _, c := range cutters {
					c.mu.Lock()
					cuts += c.cuts
					c.mu.Unlock()
				}
			}
			t.Logf("%d fences, %d cuts", epoch, cuts)
		})
	}
}

// Fences take the connections that Join has made, and open none: nothing waits in TIME_WAIT for them.
func TestFencesOpenNoConnections(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 60*time.Second)
	const hosts, fences = 5, 200
	cutters := make([]*cutter, hosts)
	nodes := listenAll(t, hosts, func(i int, cfg *Config) {
		cutters[i] = newCutter(t, 0)
		cfg.Transport, cfg.ProbeInterval = cutters[i], time.Hour
	})
	joinAll(t, ctx, nodes)
	count := func(magic string) (n int) {
		for _, c := range cutters {
			n += c.dialed(magic)
		}
		return n
	}
	members := count(magicMember)
	for epoch := range fences {
		if err := fenceAll(ctx, nodes, uint64(epoch+1), testData(epoch, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(magicFence); got != hosts-1 {
		t.Errorf("%d connections of the tree after %d fences, want %d, one for each host but the first", got, fences, hosts-1)
	}
	// memberlist exchanges its state twice a minute, which no fence waits for.
	if got := count(magicMember) - members; got > hosts {
		t.Errorf("%d connections of memberlist during %d fences, want %d at most", got, fences, hosts)
	}
}

// What a child has sent to its parent, sent again by somebody else, gets nowhere.
func TestReplayedBranch(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 60*time.Second)
	recorder := newCutter(t, 0)
	nodes := listenAll(t, 2, func(i int, cfg *Config) {
		if i == 1 {
			cfg.Transport = recorder
		}
	})
	joinAll(t, ctx, nodes)
	if err := fenceAll(ctx, nodes, 1, testData(1, 100)); err != nil {
		t.Fatal(err)
	}
	recorder.mu.Lock()
	recorded := bytes.Clone(recorder.sent.Bytes())
	recorder.mu.Unlock()
	if len(recorded) < 1000 || bytes.Contains(recorded, testData(1, 4)(1)) {
		t.Fatalf("%d bytes were recorded, want more than 1000, and no contribution among them", len(recorded))
	}
	opened := nodes[0].opened.Load()
	strangers(t, nodes[0], 3, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(testenv.Limit(30 * time.Second)))
		_, _ = c.Write(recorded)
		var got [4096]byte
		for {
			if _, err := c.Read(got[:]); err != nil {
				if strings.Contains(err.Error(), "timeout") {
					t.Errorf("a replayed connection stays open")
				}
				return
			}
		}
	})
	if got := nodes[0].opened.Load(); got != opened {
		t.Errorf("%d replayed connections were let in", got-opened)
	}
	if err := fenceAll(ctx, nodes, 2, testData(2, 100)); err != nil {
		t.Fatal(err)
	}
}
