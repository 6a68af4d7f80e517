package main

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// order is that of the matrix of the original's load.
const order = 10

// What --compute names.
const (
	computeCPU   = "cpu"
	computeSleep = "sleep"
)

// A load is what a client computes: products of a matrix and a vector. One that sleeps leaves its CPU to others, as
// where daemons have CPUs of their own; its products are nanoseconds.
type load struct {
	sleeps bool
	matrix [order][order]float64
	vector [order]float64
}

func newLoad(compute string) *load {
	l := &load{sleeps: compute == computeSleep}
	for i := range l.matrix {
		for k := range l.matrix[i] {
			l.matrix[i][k] = 1 / float64(1+i+k)
		}
		l.vector[i] = float64(i)
	}
	return l
}

// product multiplies. The result is the next vector, made small again: it depends on every
// product before, so that none can be left out.
func (l *load) product() {
	var next [order]float64
	for i := range l.matrix {
		for k, x := range l.vector {
			next[i] += l.matrix[i][k] * x
		}
	}
	for i := range next {
		l.vector[i] = next[i] / (1 + next[0])
	}
}

// some is how many products are computed between looks at the context.
const some = 4096

// run computes n products, unless ctx ends.
func (l *load) run(ctx context.Context, n int) {
	if l.sleeps {
		// Go's timers are late by a millisecond, the kernel's by a hundredth of that.
		for end := time.Now().Add(time.Duration(n)); ctx.Err() == nil && time.Until(end) > 0; {
			_ = unix.Nanosleep(new(unix.NsecToTimespec(int64(min(time.Until(end), 10*time.Millisecond)))), nil)
		}
		return
	}
	for n > 0 && ctx.Err() == nil {
		for range min(n, some) {
			l.product()
		}
		n -= some
	}
}

// calibrate is how many products take about as long as d, and how long they take.
func (l *load) calibrate(ctx context.Context, d time.Duration) (n int, took time.Duration) {
	timed := func(n int) time.Duration {
		start := time.Now()
		l.run(ctx, n)
		return max(time.Since(start), 1)
	}
	if l.sleeps {
		return int(d), timed(int(d))
	}
	n = some
	for took = timed(n); took < d/4 && ctx.Err() == nil; took = timed(n) {
		n *= 2
	}
	// What else the machine did meanwhile is not to be part of the load.
	for range 5 {
		n = max(1, int(float64(n)*float64(d)/float64(took)))
		if took = timed(n); took > d*4/5 && took < d*5/4 {
			break
		}
	}
	return n, took
}
