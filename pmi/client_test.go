package pmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi/pmitest"
)

// placements are jobs of several shapes: the host of each rank.
var placements = map[string][]int{
	"1 rank":             {0},
	"2 ranks":            {0, 0},
	"5 ranks":            {0, 0, 0, 0, 0},
	"2 hosts":            {0, 0, 1, 1},
	"3 hosts round":      {0, 1, 2, 0, 1, 2, 0},
	"60 ranks 2 hosts":   append(make([]int, 30), ones(30)...),
	"100 ranks one host": make([]int, 100),
}

func ones(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

func hostsOf(hostOf []int) int {
	n := 0
	for _, h := range hostOf {
		n = max(n, h+1)
	}
	return n
}

// testCard is distinct for each rank and round; sizes cover empty, short, and
// several pieces of the fallback.
func testCard(rank, round int) []byte {
	card := make([]byte, (rank*37+round*611)%2100)
	for i := range card {
		card[i] = byte(rank*7 + round*13 + i)
	}
	return card
}

func TestAllGather(t *testing.T) {
	for _, cards := range []bool{true, false} {
		for name, hostOf := range placements {
			t.Run(fmt.Sprintf("%s cards=%v", name, cards), func(t *testing.T) {
				if !cards && len(hostOf) > 100 {
					hostOf = hostOf[len(hostOf)-len(hostOf)/2-20 : len(hostOf)-len(hostOf)/2+20]
					for i := range hostOf {
						hostOf[i] %= 2
					}
				}
				testenv.NoLeaks(t)
				ctx := testenv.Deadline(t, 5*time.Minute)
				j := newTestJob(t, hostOf, pmitest.Stores(hostsOf(hostOf)))
				for i := range j.envs {
					j.envs[i].Cards = cards
				}
				j.ranks(func(c *Client) error {
					for round := range 4 {
						all, err := c.AllGather(ctx, testCard(c.Rank(), round))
						if err != nil {
							return err
						}
						for r := range all {
							if want := testCard(r, round); !bytes.Equal(all[r], want) {
								return fmt.Errorf("rank %d round %d: card of rank %d is %d bytes, want %d", c.Rank(), round, r, len(all[r]), len(want))
							}
						}
					}
					return c.Finalize()
				})
			})
		}
	}
}

func TestUniverseAndAppNum(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 5*time.Minute)
	j := newTestJob(t, []int{0, 1, 0, 1, 1}, pmitest.Stores(2))
	j.ranks(func(c *Client) error {
		if n, known, err := c.Universe(ctx); n != testUniverse || !known || err != nil {
			return fmt.Errorf("universe %d, %v, %v; want %d", n, known, err, testUniverse)
		}
		if n, known, err := c.AppNum(ctx); n != c.Rank()%3 || !known || err != nil {
			return fmt.Errorf("rank %d has program %d, %v, %v; want %d", c.Rank(), n, known, err, c.Rank()%3)
		}
		return c.Finalize()
	})
}

func TestPutBarrierGet(t *testing.T) {
	for name, hostOf := range placements {
		if testing.Short() && len(hostOf) > 50 {
			continue // as many in one process are awake and take turns for seconds; TestAllGather has them
		}
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, 5*time.Minute)
			j := newTestJob(t, hostOf, pmitest.Stores(hostsOf(hostOf)))
			j.ranks(func(c *Client) error {
				for round := range 3 {
					if err := c.Put(fmt.Sprint("k-", c.Rank()), fmt.Sprintf("a=b c %d.%d", c.Rank(), round)); err != nil {
						return err
					}
					if err := c.Barrier(ctx); err != nil {
						return err
					}
					other := (c.Rank() + 1) % c.Size()
					got, err := c.Get(fmt.Sprint("k-", other))
					if want := fmt.Sprintf("a=b c %d.%d", other, round); err != nil || got != want {
						return fmt.Errorf("rank %d gets %q, %v, want %q", c.Rank(), got, err, want)
					}
					if err := c.Barrier(ctx); err != nil {
						return err
					}
				}
				if _, err := c.Get("nosuch"); !errors.Is(err, ErrNotFound) {
					return fmt.Errorf("get of an unknown key: %v, want ErrNotFound", err)
				}
				return c.Finalize()
			})
		})
	}
}

func TestNames(t *testing.T) {
	testenv.NoLeaks(t)
	j := newTestJob(t, []int{0, 1, 1}, pmitest.Stores(2))
	ctx := testenv.Deadline(t, time.Minute)
	j.ranks(func(c *Client) error {
		if c.Rank() == 2 {
			if err := clientNames(ctx, c); err != nil {
				return err
			}
			if err := c.Publish(ctx, "for-all", "here"); err != nil {
				return err
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if port, err := c.Lookup(ctx, "for-all"); err != nil || port != "here" {
			return fmt.Errorf("rank %d: lookup: %q, %w", c.Rank(), port, err)
		}
		for _, bad := range []string{"", "two words", "a=b", "a\nb", "a\x00b"} {
			if err := c.Publish(ctx, bad, "port"); !errors.Is(err, ErrSyntax) {
				return fmt.Errorf("publish %q: %w", bad, err)
			}
			if _, err := c.Lookup(ctx, bad); !errors.Is(err, ErrSyntax) {
				return fmt.Errorf("lookup %q: %w", bad, err)
			}
		}
		return c.Finalize()
	})
}

func TestSpawnRefused(t *testing.T) {
	testenv.NoLeaks(t)
	j := newTestJob(t, []int{0}, pmitest.Stores(1))
	ctx := testenv.Deadline(t, time.Minute)
	j.ranks(func(c *Client) error {
		if _, err := c.Spawn(ctx, []SpawnApp{{Program: "x", N: 1}}, nil); !errors.Is(err, ErrRefused) {
			return fmt.Errorf("a refused spawn: %w", err)
		}
		if _, err := c.Spawn(ctx, []SpawnApp{{Program: "x", N: 0}}, nil); !errors.Is(err, ErrRefused) {
			return fmt.Errorf("a spawn of no processes: %w", err)
		}
		for _, app := range []SpawnApp{{Program: "x\n", N: 1}, {Program: "x", N: 1, Args: []string{"a\nendcmd"}}, {Program: "x", N: 1, Info: [][2]string{{"k", "v\x00"}}}} {
			if _, err := c.Spawn(ctx, []SpawnApp{app}, nil); !errors.Is(err, ErrSyntax) {
				return fmt.Errorf("spawn of %+v: %w", app, err)
			}
		}
		return c.Finalize()
	})
}

func TestBlockedCallEndsWithContext(t *testing.T) {
	testenv.NoLeaks(t)
	j := newTestJob(t, []int{0, 0}, pmitest.Stores(1))
	c, err := Dial(j.envs[0])
	if err != nil {
		t.Fatal(err)
	}
	d, err := Dial(j.envs[1])
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Barrier(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Barrier: %v, want context.Canceled", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
