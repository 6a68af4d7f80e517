package calls

import (
	"cmp"
	"math"
	"math/bits"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// clock reads CLOCK_MONOTONIC. Where the kernel makes that of the processor's counter, a look at it is one at the counter, at a
// third of the price: the clock goes on from the last time that the kernel's was read, by the rate found then. Before the first
// millisecond has passed, and on other machines, that is read each time. It never goes back.
type clock struct {
	base  time.Time // and what CLOCK_MONOTONIC was then
	begin int64

	steady bool   // the counter is the kernel's clock
	from   uint64 // of the counter, when the kernel's clock was last read, 0: not yet,
	read   int64  // what that was,
	at     int64  // and what this one was: it may have been ahead
	rate   uint64 // nanoseconds a tick from then, times 1<<32
	span   uint64 // ticks from then, during which the rate is good; 0: it is not known
}

const (
	rateAfter = time.Millisecond       // of a rate: two readings that are 50 ns off make one that is 0.01 % off
	rateFor   = 100 * time.Millisecond // the kernel's clock may be set to another speed
	readingIn = 1000                   // ticks; a reading that takes longer was interrupted
	readings  = 10                     // of the kernel's clock at first, of which the one that took least counts
)

func newClock() (c clock, err error) {
	least := int64(math.MaxInt64)
	for range readings {
		var before, after unix.Timespec
		failed := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
		base := time.Now()
		if err := cmp.Or(failed, unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)); err != nil {
			return c, os.NewSyscallError("clock_gettime", err)
		}
		if took := after.Nano() - before.Nano(); took < least {
			least, c.base, c.begin = took, base, before.Nano()+took/2
		}
	}
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource") // none under some emulators
	switch strings.TrimSpace(string(source)) {
	case "tsc", "arch_sys_counter":
		c.steady = arch.Ticks() != 0
	}
	c.at = c.begin
	return c, nil
}

func (c *clock) now() int64 {
	if ticks := arch.Ticks() - c.from; ticks < c.span {
		return c.after(ticks)
	}
	return c.look()
}

// after is the time so many ticks behind from.
func (c *clock) after(ticks uint64) int64 {
	high, low := bits.Mul64(ticks, c.rate)
	return c.at + int64(high<<32|low>>32)
}

// look reads the kernel's clock, and makes a rate of that and of the last time where there is more than rateAfter between them: one
// with which a clock that is ahead is so no longer at the end of its span.
func (c *clock) look() int64 {
	before := arch.Ticks()
	now := c.begin + int64(time.Since(c.base))
	took, ticks := arch.Ticks()-before, before-c.from
	at := max(now, c.at)
	if ticks < 2*c.span {
		at = max(at, c.after(ticks))
	}
	passed := now - c.read
	if !c.steady || took > readingIn || c.from != 0 && passed < int64(rateAfter) {
		return at
	}
	if c.from != 0 {
		span := min(2*passed, int64(rateFor))
		c.span = uint64(float64(ticks) * float64(span) / float64(passed))
		c.rate = uint64(float64(max(0, span-(at-now))) / float64(c.span) * (1 << 32))
	}
	c.from, c.read, c.at = before, now, at
	return at
}
