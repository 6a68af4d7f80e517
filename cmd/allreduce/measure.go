package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
)

// vectors are those of a batch, and what they must become.
type vectors struct {
	config group.Config
	fresh  []byte // v[i] = i
	all    [][]byte
	first  []byte // result of the first operation; all others have the same bits
	want   []byte // the vectors of all members combined one after the other
}

// newVectors are those of a batch in the memory of a session.
func newVectors(c group.Config, all [][]byte, contributions int) *vectors {
	v := &vectors{config: c, fresh: ramp(c), all: all}
	v.want = bytes.Clone(v.fresh)
	r := c.Reduction()
	for range contributions - 1 {
		r.Func(v.want, v.want, v.fresh)
	}
	return v
}

// ramp is the original's vector: v[i] = i; of bytes, i mod 255.
func ramp(c group.Config) []byte {
	b := make([]byte, 0, c.Bytes())
	for i := range c.Size {
		switch c.Type {
		case "byte":
			b = append(b, byte(i%255))
		case "int":
			b = binary.NativeEndian.AppendUint32(b, uint32(i))
		case "float":
			b = binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(i)))
		case "double":
			b = binary.NativeEndian.AppendUint64(b, math.Float64bits(float64(i)))
		}
	}
	return b
}

func (v *vectors) reset() {
	for _, b := range v.all {
		copy(b, v.fresh)
	}
}

// verify holds the results of a batch against what they must be.
func (v *vectors) verify() error {
	if v.first == nil {
		if i := differs(v.config, v.all[0], v.want); i >= 0 {
			return fmt.Errorf("element %d of a result is wrong: found %s, expected %s", i, show(v.config, v.all[0], i), show(v.config, v.want, i))
		}
		v.first = bytes.Clone(v.all[0])
	}
	for i, b := range v.all {
		if !bytes.Equal(b, v.first) {
			return fmt.Errorf("operation %d of a batch has another result than the first one had", i)
		}
	}
	return nil
}

// digest is that of the results, for the other members.
func (v *vectors) digest() []byte {
	d := sha256.Sum256(v.first)
	return d[:8]
}

// differs is the first element in which two vectors differ by more than another order of
// combining can explain; -1: none.
func differs(c group.Config, got, want []byte) int {
	for i := range c.Size {
		a, b := value(c, got, i), value(c, want, i)
		close := a == b || math.IsNaN(a) && math.IsNaN(b)
		if c.Type == "float" || c.Type == "double" {
			close = close || math.Abs(a-b) <= 1e-4*math.Abs(b)
		}
		if !close {
			return i
		}
	}
	return -1
}

func value(c group.Config, v []byte, i int) float64 {
	switch c.Type {
	case "byte":
		return float64(v[i])
	case "int":
		return float64(int32(binary.NativeEndian.Uint32(v[4*i:])))
	case "float":
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(v[4*i:])))
	}
	return math.Float64frombits(binary.NativeEndian.Uint64(v[8*i:]))
}

func show(c group.Config, v []byte, i int) string { return fmt.Sprint(value(c, v, i)) }

// measure is a client's run: the network alone, the load alone, then both.
func (a *app) measure(s *group.Session) (*report, error) {
	a.Log.Infof(saidComplete, s.Members(), s.Contributions(), s.Algorithm())
	v := newVectors(a.config, s.Vectors(), s.Contributions())
	r := &report{task: newTask(a.mode, &a.config, s)}
	batch := func(meanwhile func()) (time.Duration, error) {
		v.reset()
		start := time.Now()
		err := s.Batch(meanwhile)
		took := time.Since(start)
		if err == nil {
			err = v.verify()
		}
		return took, err
	}
	if err := s.Barrier(nil); err != nil {
		return nil, err
	}
	var network time.Duration
	for range group.NetworkBatches {
		took, err := batch(nil)
		if err != nil {
			return nil, failed(s, err)
		}
		network += took
	}
	network /= group.NetworkBatches
	work := newLoad(a.compute)
	products, compute := work.calibrate(s.Context(), network)
	a.Log.Debugf("%d products of a matrix and a vector take %v, a batch of the network alone %v", products, compute, network)
	if err := s.Barrier(nil); err != nil {
		return nil, err
	}
	for range a.config.Batches {
		took, err := batch(func() { work.run(s.Context(), products) })
		if err != nil {
			return nil, failed(s, err)
		}
		r.took = append(r.took, took)
	}
	if err := s.Barrier(v.digest()); err != nil {
		return nil, err
	}
	r.settle(network, compute, products)
	return r, nil
}

// failed is err, told to the other members.
func failed(s *group.Session, err error) error {
	s.Fail(err)
	return err
}
