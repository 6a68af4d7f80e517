package main

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
)

// A task is what was done, by a client or a daemon.
type task struct {
	Mode         string `json:"mode"`
	Operation    string `json:"operation"`
	Type         string `json:"datatype"`
	Batches      int    `json:"num_batches"`
	Batch        int    `json:"batch_size"`
	Size         int    `json:"size"`  // elements
	Bytes        int    `json:"bytes"` // of a vector
	Participants int    `json:"participants"`
	Vectors      int    `json:"vectors"` // that an operation combines
	Algorithm    string `json:"algorithm"`
}

func newTask(mode string, c *group.Config, m *group.Session) task {
	return task{Mode: mode, Operation: c.Operation, Type: c.Type, Batches: c.Batches, Batch: c.Batch, Size: c.Size, Bytes: c.Bytes(),
		Participants: m.Members(), Vectors: m.Contributions(), Algorithm: m.Algorithm()}
}

func (r *task) write(w io.Writer) {
	fmt.Fprintf(w, "mode           %s\n", r.Mode)
	fmt.Fprintf(w, "operation      %s\n", r.Operation)
	fmt.Fprintf(w, "datatype       %s\n", r.Type)
	fmt.Fprintf(w, "batches        %d\n", r.Batches)
	fmt.Fprintf(w, "batch size     %d\n", r.Batch)
	fmt.Fprintf(w, "vector size    %d (%d bytes)\n", r.Size, r.Bytes)
	fmt.Fprintf(w, "group          %d participants, %d vectors an operation, %s\n", r.Participants, r.Vectors, r.Algorithm)
}

// A service is what a daemon has done.
type service struct {
	task
	Clients    int     `json:"clients"`
	Operations int     `json:"operations"`
	Seconds    float64 `json:"served_s"`
}

func (s *service) write(to io.Writer) {
	w := &bytes.Buffer{} // one write, which a launcher keeps together
	s.task.write(w)
	fmt.Fprintf(w, "served         %d clients, %d operations in %.6f s\n", s.Clients, s.Operations, s.Seconds)
	_, _ = to.Write(w.Bytes())
}

// A report is what a client has measured. Times are in seconds, of a batch.
type report struct {
	task
	RunMin   float64 `json:"run_min_s"`
	RunMax   float64 `json:"run_max_s"`
	RunAvg   float64 `json:"run_avg_s"`
	RunTotal float64 `json:"run_total_s"` // of all batches
	Compute  float64 `json:"compute_s"`
	Network  float64 `json:"network_s"`

	OverlapDOCA float64 `json:"overlap_doca_percent"`
	OverlapOSU  float64 `json:"overlap_osu_percent"`
	Products    int     `json:"products"` // that the load consists of

	took []time.Duration
}

// settle works out the figures.
func (r *report) settle(network, compute time.Duration, products int) {
	least, most, total := r.took[0], r.took[0], time.Duration(0)
	for _, d := range r.took {
		least, most, total = min(least, d), max(most, d), total+d
	}
	r.RunMin, r.RunMax, r.RunTotal = least.Seconds(), most.Seconds(), total.Seconds()
	r.RunAvg = r.RunTotal / float64(len(r.took))
	r.Compute, r.Network, r.Products = compute.Seconds(), network.Seconds(), products
	r.OverlapDOCA, r.OverlapOSU = overlapDOCA(r.Network, r.Compute, r.RunAvg), overlapOSU(r.Network, r.Compute, r.RunAvg)
}

// overlapDOCA is the original's: which part of the longer one of network and load was hidden.
func overlapDOCA(network, compute, run float64) float64 {
	return 100 * min(max((network+compute-run)/max(network, compute), 0), 1)
}

// overlapOSU is that of the OSU benchmarks: which part of the network's time was hidden, and no more than
// all of it where a batch took less than its load did alone.
func overlapOSU(network, compute, run float64) float64 {
	return 100 * min(max(1-(run-compute)/network, 0), 1)
}

// write prints the report for people.
func (r *report) write(to io.Writer) {
	w := &bytes.Buffer{}
	r.task.write(w)
	fmt.Fprintf(w, "run time       min %.6f, max %.6f, avg %.6f, total %.6f s\n", r.RunMin, r.RunMax, r.RunAvg, r.RunTotal)
	fmt.Fprintf(w, "compute time   %.6f s\n", r.Compute)
	fmt.Fprintf(w, "network time   %.6f s\n", r.Network)
	fmt.Fprintf(w, "overlap        %.1f %% (DOCA), %.1f %% (OSU)\n", r.OverlapDOCA, r.OverlapOSU)
	fmt.Fprintf(w, "verified       %d operations; all members have the same bits\n", (r.Batches+group.NetworkBatches)*r.Batch)
	_, _ = to.Write(w.Bytes())
}
