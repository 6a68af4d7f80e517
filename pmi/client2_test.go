package pmi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi/pmitest"
)

// client2 is a rank that speaks PMI-2, for tests.
type client2 struct {
	sock       *os.File
	in         *bufio.Reader
	rank, size int
}

// dial2 opens the connection of a rank.
func dial2(env Env) (*client2, error) {
	c := &client2{sock: os.NewFile(uintptr(env.FD), "rank"), rank: env.Rank}
	c.in = bufio.NewReader(c.sock)
	if _, err := io.WriteString(c.sock, sayInit2); err != nil {
		return nil, err
	}
	if line, err := c.in.ReadString('\n'); err != nil || line != initAnswer2 {
		return nil, fmt.Errorf("init is answered with %q, %w", line, err)
	}
	m, err := c.ask("fullinit", "pmirank", strconv.Itoa(env.Rank))
	if err != nil {
		return nil, err
	}
	if n, _ := m.Int("rank"); n != env.Rank {
		return nil, fmt.Errorf("fullinit is answered with %v, want rank %d", m, env.Rank)
	}
	c.size, _ = m.Int("size")
	return c, nil
}

// ask sends a command and waits for its response.
func (c *client2) ask(cmd string, pairs ...string) (Message, error) {
	if _, err := c.sock.Write(NewMessage(cmd, pairs...).AppendFrame(nil)); err != nil {
		return Message{}, err
	}
	head := make([]byte, lengthDigits)
	if _, err := io.ReadFull(c.in, head); err != nil {
		return Message{}, fmt.Errorf("%s: %w", cmd, err)
	}
	n, err := frameLength(head)
	if err != nil {
		return Message{}, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return Message{}, fmt.Errorf("%s: %w", cmd, err)
	}
	m, err := ParseFrame(body)
	if err != nil || m.Cmd() != cmd+"-response" {
		return m, fmt.Errorf("%s is answered with %q, %w", cmd, body, err)
	}
	if rc, ok := m.Int("rc"); !ok || rc != 0 {
		why, _ := m.Get("errmsg")
		return m, fmt.Errorf("%s: rc=%d, %s: %w", cmd, rc, why, ErrRefused)
	}
	return m, nil
}

// get is a key's value.
func (c *client2) get(cmd, key string, more ...string) (string, error) {
	m, err := c.ask(cmd, append([]string{"key", key}, more...)...)
	if err != nil {
		return "", err
	}
	if found, _ := m.Get("found"); found != "TRUE" {
		return "", fmt.Errorf("%s key=%s: %w", cmd, key, ErrNotFound)
	}
	value, _ := m.Get("value")
	return value, nil
}

// Ranks of PMI-2, and of PMI-1 beside them, on one host and on several: the same
// fence carries what both put.
func TestPMI2Ranks(t *testing.T) {
	for name, hostOf := range map[string][]int{"1 rank": {0}, "4 ranks": {0, 0, 0, 0}, "2 hosts": {0, 0, 1, 1}, "3 hosts": {0, 1, 2, 0, 1, 2}} {
		for _, mixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mixed %v", name, mixed), func(t *testing.T) {
				testenv.NoLeaks(t)
				j := newTestJob(t, hostOf, pmitest.Stores(hostsOf(hostOf)))
				ctx := testenv.Deadline(t, time.Minute)
				done := make(chan error)
				for r, env := range j.envs {
					env.Cards = false
					go func() {
						if mixed && r%2 == 1 {
							done <- speak1(ctx, env, len(hostOf))
							return
						}
						done <- speak2(env, len(hostOf), hostOf)
					}()
				}
				for range hostOf {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				j.mu.Lock()
				defer j.mu.Unlock()
				for _, ev := range j.events {
					if v, ok := ev.(Violation); ok {
						t.Errorf("violation: %v", v.Err)
					}
				}
			})
		}
	}
}

const rounds2 = 20

func speak1(ctx context.Context, env Env, size int) error {
	c, err := Dial(env)
	if err != nil {
		return err
	}
	defer c.Close()
	for round := range rounds2 {
		if err := c.Put(fmt.Sprintf("%d-%d", round, env.Rank), fmt.Sprintf("a; b of %d", env.Rank)); err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		for r := range size {
			if got, err := c.Get(fmt.Sprintf("%d-%d", round, r)); err != nil || got != fmt.Sprintf("a; b of %d", r) {
				return fmt.Errorf("rank %d reads %q of rank %d, %w", env.Rank, got, r, err)
			}
		}
	}
	return c.Finalize()
}

func speak2(env Env, size int, hostOf []int) error {
	c, err := dial2(env)
	if err != nil {
		return err
	}
	defer c.sock.Close()
	if c.size != size {
		return fmt.Errorf("size %d, want %d", c.size, size)
	}
	// The first of a host's ranks that speaks PMI-2 tells the others.
	local, err := c.get("info-getnodeattr", "localRanks")
	if err != nil || !strings.Contains(","+local+",", fmt.Sprintf(",%d,", env.Rank)) {
		return fmt.Errorf("localRanks are %q, %w", local, err)
	}
	if hostOf[env.Rank] == hostOf[0] && env.Rank == 0 {
		if _, err := c.ask("info-putnodeattr", "key", "first", "value", "v;w"); err != nil {
			return err
		}
	}
	if hostOf[env.Rank] == hostOf[0] {
		if v, err := c.get("info-getnodeattr", "first", "wait", "TRUE"); err != nil || v != "v;w" {
			return fmt.Errorf("the attribute is %q, %w", v, err)
		}
	}
	for round := range rounds2 {
		if _, err := c.ask("kvs-put", "key", fmt.Sprintf("%d-%d", round, env.Rank), "value", fmt.Sprintf("a; b of %d", env.Rank)); err != nil {
			return err
		}
		if _, err := c.ask("kvs-fence"); err != nil {
			return err
		}
		for r := range size {
			if got, err := c.get("kvs-get", fmt.Sprintf("%d-%d", round, r)); err != nil || got != fmt.Sprintf("a; b of %d", r) {
				return fmt.Errorf("rank %d reads %q of rank %d, %w", env.Rank, got, r, err)
			}
		}
	}
	_, err = c.ask("finalize")
	return err
}
