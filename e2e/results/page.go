package main

import (
	"cmp"
	"fmt"
	"strings"
)

// A page is what is written.
type page struct {
	header   header
	command  string
	rounds   string
	load     string
	sections []section
}

// A section has text, and tables or plots, in this order.
type section struct {
	title  string
	text   string
	tables []table
}

// A table has a title of its own, and plots below it.
type table struct {
	title, text string
	columns     []string
	rows        [][]string
	plots       []plot
}

type plot struct{ file, text string }

func (p *page) markdown() string {
	var b strings.Builder
	b.WriteString(heading)
	h := &p.header
	fmt.Fprintf(&b, "\nCommand: `%s`. gorun %s at commit %s, built by %s; MPICH %s; Open MPI %s.\n", p.command, h.Versions["gorun"], cmp.Or(h.Commit, "unknown"),
		h.Versions["go"], cmp.Or(h.Versions["mpich"], "not installed"), cmp.Or(h.Versions["openmpi"], "not installed"))
	fmt.Fprintf(&b, "Machine: %d cores of %s, %.0f GiB, %s, %s; load average when it began: %s.\nRounds: %s.\n", h.Machine.Cores, h.Machine.CPU,
		float64(h.Machine.Memory)/(1<<30), h.Machine.Kernel, h.Machine.System, p.load, p.rounds)
	b.WriteString(method)
	for _, s := range p.sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s", s.title, s.text)
		for _, t := range s.tables {
			t.write(&b)
		}
	}
	return b.String()
}

func (t *table) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n", t.title)
	if t.text != "" {
		fmt.Fprintf(b, "\n%s", t.text)
	}
	fmt.Fprintf(b, "\n| %s |\n|%s\n", strings.Join(t.columns, " | "), strings.Repeat("---|", len(t.columns)))
	for _, r := range t.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(r, " | "))
	}
	for _, p := range t.plots {
		fmt.Fprintf(b, "\n![%s](%s)\n", p.text, p.file)
	}
}

const heading = `<!-- make results writes this page; edit e2e/results instead -->
# Results beside the original's

Every table of the guides of DOCA's three applications, with the guides' figures, gorun's, and for all-to-all and all-reduce those of
MPICH and Open MPI on the same machine. [Benchmarks](benchmarks.md) has the comparison of all calls with the MPIs.
`

const method = `
## Method

- Systems run in turn, round after round, so that drift of the machine affects all alike. A cell is the median of the rounds, with the
  least and the most of them. All results are verified.
- The MPIs' programs are [testdata/mpi/bench.c](../testdata/mpi/bench.c), built with each one's compiler: the same loops, elements, sizes and numbers of ranks as
  gorun's. Where ranks and CPUs are as many, each MPI runs bound to cores and unbound, and its better figure counts. On more ranks Open MPI yields when
  idle; MPICH, whose ranks spin, runs unbound. "MPICH_ASYNC_PROGRESS=1" is MPICH with its progress threads.
- "gorun's ranks" are programs of package [rank](go.md), with registered memory; "progress threads" is ` + "`gorun --async-progress on`" + `,
  "daemon" is ` + "`gorun --offload`" + `, with one thread.
- A cell without a figure says why: the MPI is not installed, its job did not end in its time, or the time of the whole run was over.

## What cannot be compared

- **Hardware.** The guides' machines have a BlueField DPU, whose own processors, NIC and PCIe take part. Here both ends are processes of one
  machine, and what the DPU does there runs on the same cores as the ranks. So a daemon or a device thread competes with the ranks that it is
  to relieve, and no message crosses a bus. The guides' CPUs are not named.
- **Timing.** The guides' times of the all-to-all contain the set-up of all connections and a poll that sleeps; their
  channel's contain a line of log for each message. The tables say what ours contain.
- **Between the columns.** ` + "`a2a`" + ` gives every call new buffers, which it fills and verifies, as the original does; ranks and MPIs use theirs
  again, as MPI benchmarks do, and find more in their caches.
- **Hosts.** Nothing here measures a network.
`
