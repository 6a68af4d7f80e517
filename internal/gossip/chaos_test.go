package gossip

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/hashicorp/memberlist"
)

// chaos is a transport that loses, doubles and delays whole one-way messages by
// seed, once it is switched on. Exchanges that await an answer, which are
// memberlist's push-pulls and pings, are left alone: those it repairs itself.
type chaos struct {
	memberlist.Transport

	mu           sync.Mutex
	rng          *rand.Rand
	lose, double float64
	lost, twice  int
	wg           sync.WaitGroup
}

// newChaos wraps a loopback transport of memberlist.
func newChaos(t *testing.T, seed int64) *chaos {
	t.Helper()
	under, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"127.0.0.1"}, Logger: log.New(io.Discard, "", 0)})
	if err != nil {
		t.Fatal(err)
	}
	return &chaos{Transport: under, rng: rand.New(rand.NewSource(seed))}
}

func (c *chaos) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := c.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return &chaosConn{Conn: conn, of: c, addr: addr}, nil
}

func (c *chaos) Shutdown() error {
	c.wg.Wait()
	return c.Transport.Shutdown()
}

// A chaosConn holds what is written until it is read from, then it is an
// exchange and goes through, or closed, then it is a message.
type chaosConn struct {
	net.Conn
	of   *chaos
	addr string
	buf  bytes.Buffer
	once sync.Once
	pass bool
}

func (c *chaosConn) Write(b []byte) (int, error) {
	if c.pass {
		return c.Conn.Write(b)
	}
	return c.buf.Write(b)
}

func (c *chaosConn) Read(b []byte) (int, error) {
	if !c.pass {
		c.pass = true
		if _, err := c.Conn.Write(c.buf.Bytes()); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

func (c *chaosConn) Close() error {
	defer c.Conn.Close()
	if c.pass {
		return nil
	}
	c.once.Do(func() { c.of.message(c.addr, c.buf.Bytes()) })
	return nil
}

// message loses, doubles or delays a message; what is delayed may be overtaken.
func (c *chaos) message(addr string, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	copies := 1
	switch p := c.rng.Float64(); {
	case p < c.lose:
		copies = 0
		c.lost++
	case p < c.lose+c.double:
		copies = 2
		c.twice++
	}
	for range copies {
		var delay time.Duration
		if c.double > 0 {
			delay = time.Duration(c.rng.Intn(5000)) * time.Microsecond
		}
		c.wg.Add(1)
		time.AfterFunc(delay, func() {
			defer c.wg.Done()
			conn, err := c.Transport.DialTimeout(addr, time.Second)
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Write(b)
		})
	}
}

func TestLostAndDoubledMessages(t *testing.T) {
	for seed := range int64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, 60*time.Second)
			const hosts = 5
			chaoses := make([]*chaos, hosts)
			nodes := listenAll(t, hosts, func(i int, cfg *Config) {
				chaoses[i] = newChaos(t, seed*100+int64(i))
				cfg.Transport = chaoses[i]
			})
			joinAll(t, ctx, nodes)
			for _, c := range chaoses {
				c.mu.Lock()
				c.lose, c.double = 0.15, 0.2
				c.mu.Unlock()
			}
			// As many fences as it takes to see both.
			lost, twice, epoch := 0, 0, 0
			for epoch < 2 || lost == 0 || twice == 0 {
				epoch++
				if err := fenceAll(ctx, nodes, uint64(epoch), testData(epoch, 2000)); err != nil {
					t.Fatal(err)
				}
				lost, twice = 0, 0
				for _, c := range chaoses {
					c.mu.Lock()
					lost, twice = lost+c.lost, twice+c.twice
					c.mu.Unlock()
				}
			}
			t.Logf("%d fences, %d messages lost, %d doubled", epoch, lost, twice)
		})
	}
}
