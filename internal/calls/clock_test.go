package calls

import (
	"testing"
	"time"
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
