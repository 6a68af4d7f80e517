package gossip

import (
	"bytes"
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// strangers connects to a node n times, and has each connection do something.
func strangers(t *testing.T, node *Node, n int, do func(c net.Conn)) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		c, err := net.Dial("tcp", node.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all.Go(func() { do(c) })
	}
	all.Wait()
}

// Connections that say that they bring a long message, and bring it, take no memory
// before they prove the key, and the hosts meet beside them.
func TestStrangersTakeNoMemory(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	nodes := listenAll(t, 3, nil)
	const encrypted, size = 10, 19 << 20 // memberlist's type of message, and less than it takes
	head := binary.BigEndian.AppendUint32([]byte{encrypted}, size)
	body := make([]byte, 64<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	strangers(t, nodes[0], 40, func(c net.Conn) {
		if _, err := c.Write(head); err != nil {
			return
		}
		for sent := 0; sent < size; sent += len(body) {
			if _, err := c.Write(body); err != nil {
				return
			}
		}
	})
	joinAll(t, ctx, nodes)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("40 strangers had %d MiB allocated, want less than 16", took>>20)
	}
}

// More silent connections than may be, open all the time, keep no host out.
func TestSilentStrangers(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	nodes := listenAll(t, 3, nil)
	for _, n := range nodes {
		strangers(t, n, unprovenMax+50, func(net.Conn) {})
	}
	joinAll(t, ctx, nodes)
	if err := fenceAll(ctx, nodes, 1, testData(1, 100)); err != nil {
		t.Error(err)
	}
	for _, n := range nodes {
		n.conns.mu.Lock()
		if waiting := len(n.conns.waiting); waiting > unprovenMax {
			t.Errorf("%d connections wait, %d at most", waiting, unprovenMax)
		}
		n.conns.mu.Unlock()
	}
}

func TestProof(t *testing.T) {
	key, other := prover{testKey}, prover{bytes.Repeat([]byte{8}, KeySize)}
	const self = "127.0.0.1:4711"
	good := key.proof(magicMember, self)
	fence := key.proof(magicFence, self)
	turned := bytes.Clone(good)
	copy(turned, magicFence)
	bent := bytes.Clone(good)
	bent[magicSize] ^= 1
	for name, c := range map[string]struct {
		sent []byte
		want string
		told bool // that the key differs
	}{
		"good":             {good, magicMember, false},
		"again":            {good, magicMember, false}, // see prover
		"of the tree":      {fence, magicFence, false},
		"another purpose":  {turned, "", true},
		"another key":      {other.proof(magicMember, self), "", true},
		"another address":  {key.proof(magicMember, "127.0.0.1:4712"), "", true},
		"another random":   {bent, "", true},
		"another protocol": {append([]byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, proofSize)...), "", false},
		"too short":        {good[:proofSize-1], "", false},
		"nothing":          {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer theirs.Close()
			answer := make(chan []byte, 1)
			go func() {
				defer theirs.Close()
				_, _ = theirs.Write(c.sent[:min(len(c.sent), proofSize)])
				if len(c.sent) < proofSize {
					theirs.Close()
				}
				got := make([]byte, 100)
				n, _ := theirs.Read(got)
				answer <- got[:n]
			}()
			if got := key.check(ours, self); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			ours.Close()
			if got := <-answer; refused(got) != c.told {
				t.Errorf("answered %q", got)
			}
		})
	}
}
