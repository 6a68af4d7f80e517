package calls

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The clock never goes back, and is that of the kernel, with the counter and without, whatever rate it has found before.
func TestClock(t *testing.T) {
	for _, how := range []struct {
		name  string
		spoil func(*clock)
	}{
		{"as it is", func(*clock) {}},
		{"no counter", func(c *clock) { c.steady = false }},
		{"too high a rate", func(c *clock) { c.rate += c.rate / 1000 }},
		{"too low a rate", func(c *clock) { c.rate -= c.rate / 1000 }},
	} {
		t.Run(how.name, func(t *testing.T) {
			c, err := newClock()
			if err != nil {
				t.Fatal(err)
			}
			how.spoil(&c)
			const off = int64(time.Millisecond) // of the spoiled ones up to a thousandth of rateFor
			for last := c.begin; last < c.begin+3*int64(rateFor); {
				before, at := c.begin+int64(time.Since(c.base)), c.at
				now := c.now()
				after := c.begin + int64(time.Since(c.base))
				if now < last {
					t.Fatalf("%d ns back", last-now)
				}
				if now < before-off || now > after+off {
					t.Fatalf("%d, want %d to %d", now, before, after)
				}
				if last = now; c.at != at { // a new rate
					how.spoil(&c)
				}
			}
		})
	}
}

// The clocks of all processes of a host are the same one: a message is never there before it was sent.
func TestClocksAreTheKernels(t *testing.T) {
	kernel := func() int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano()
	}
	const rounds, off = 100, int64(10 * time.Microsecond)
	good := 0
	for range rounds {
		c, err := newClock()
		if err != nil {
			t.Fatal(err)
		}
		if before, now, after := kernel(), c.now(), kernel(); now >= before-off && now <= after+off {
			good++
		}
	}
	if good < rounds*9/10 { // a process may lose its CPU in each of the readings at first
		t.Errorf("%d of %d clocks are off by more than %d ns", rounds-good, rounds, off)
	}
}
