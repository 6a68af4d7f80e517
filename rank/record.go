package rank

import (
	"fmt"
	"os"
	"strings"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
)

// newRecord begins the record of a rank's calls, which gorun --profile wants. A rank without one, nil, runs all the same.
func newRecord(cfg *Config, rank, size int) *calls.Recorder {
	path := cfg.Environment.Profile
	if path == "" || cfg.place != nil {
		return nil
	}
	r, err := calls.Create(path, rank, size, ofLibrary)
	if os.IsExist(err) {
		return nil // of a program that this process ran before
	}
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "gorun: rank %d: its calls are not recorded: %v\n", rank, err)
	case cfg.Concurrent:
		r.Concurrent()
		_ = r.Close()
	default:
		r.Begin()
		r.As("Init")
		return r
	}
	return nil
}

// closeRecord ends it. device is nil where Init has failed before there was one.
func closeRecord(r *calls.Recorder, device *peers.Device) {
	if r == nil {
		return
	}
	r.End()
	if device != nil {
		n := device.Context.Counters()
		r.Finalized(calls.RDMA{Device: device.Name, Writes: n.Writes, WriteBytes: n.WriteBytes, Reads: n.Reads, ReadBytes: n.ReadBytes,
			Sends: n.Sends, SendBytes: n.SendBytes, Atomics: n.Atomics, Retries: n.RNRRetries + n.AckRetries, Errors: n.Errors})
	}
	_ = r.Close()
}

const library = "github.com/gorun-mpi/gorun/rank"

// ofLibrary tells whether a function is of this package or of one below it.
func ofLibrary(function string) bool {
	rest, ok := strings.CutPrefix(function, library)
	return ok && (rest[0] == '.' || strings.HasPrefix(rest, "/internal/")) || strings.HasPrefix(function, "github.com/gorun-mpi/gorun/internal/calls.")
}

// record notes a collective in the record of calls.
func (c *Comm) record(out, in int, begun bool) {
	c.recorded++
	c.world.recorder.Collective(c.context, c.recorded, out, in, begun)
}

func (k *call) record(begun bool) {
	a := &k.args
	out, in := len(a.Send.Mem), len(a.Recv.Mem)
	if len(a.Sends)+len(a.Recvs) > 0 {
		out, in = 0, 0
		for _, p := range a.Sends {
			if out += p.N; a.Kind == coll.Exchange {
				k.comm.world.recorder.Part(k.comm.members.Rank(p.Peer), p.N)
			}
		}
		for _, p := range a.Recvs {
			in += p.N
		}
	}
	k.comm.record(out, in, begun)
}
