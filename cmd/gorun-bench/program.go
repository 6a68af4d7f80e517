package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorun-mpi/gorun/internal/mpilib"
)

// A program of the standard ABI runs with each MPI of --mpi, in turn, round after round, as gorun's own rows are measured:
// what drifts drifts for all. Its figures are its own, lines of numbers as those of the OSU micro-benchmarks: a
// size and a figure, or a figure alone.

// An anyMPI is one that --mpi names.
type anyMPI struct {
	name    string
	library mpilib.Library
}

// settleProgram checks what goes with --program.
func (p *params) settleProgram() error {
	p.program = strings.Fields(p.programText)
	switch {
	case p.programText == "" && p.mpiList != "":
		return errors.New("--mpi: found no --program, expected a program of the standard ABI; try --program ./osu_latency --mpi mpich,openmpi")
	case p.programText == "":
		return nil
	case len(p.program) == 0 || p.mpiList == "":
		return errors.New("--program: found no program, or no --mpi, expected both; try --program ./osu_latency --mpi mpich,openmpi")
	case p.benchmarkList+p.sizeList+p.compareList+p.csv+p.json+p.html+p.svg+p.tune+p.from != "" || p.quick || p.applications:
		return errors.New("--program: found what is for gorun's own benchmarks beside it (-b, -m, --compare, --quick, or a file to write or read), expected only --mpi, -n, -r and -q")
	}
	for name := range strings.SplitSeq(p.mpiList, ",") {
		library, err := mpilib.Find(name, os.Environ())
		if err != nil {
			return fmt.Errorf("--mpi %s: %w", name, err)
		}
		p.mpis = append(p.mpis, anyMPI{name, library})
	}
	return nil
}

// figureKey is a line of figures.
type figureKey struct {
	np   int
	size string // as the program writes it; "": it writes none
}

// programRuns are the figures of a program: by line and MPI those of the rounds.
type programRuns struct {
	keys []figureKey
	of   map[figureKey][][]float64
	took map[int][][]float64 // seconds of whole jobs, by number of ranks
	mpis []anyMPI
}

// programCommand measures a program.
func programCommand(ctx context.Context, s *session, out io.Writer) error {
	p, runs := s.params, &programRuns{of: map[figureKey][][]float64{}, took: map[int][][]float64{}, mpis: s.params.mpis}
	for round := range p.runs {
		for _, np := range p.counts {
			for i, mpi := range p.mpis {
				s.progress.say(fmt.Sprintf("round %d of %d, np %d, %s", round+1, p.runs, np, mpi.name))
				var text strings.Builder
				var said tail
				argv := slices.Concat([]string{commandBeside(s.self, "gorun"), "-q", "--mpi", mpi.name, "-np", strconv.Itoa(np)}, p.program)
				begun := time.Now()
				err := s.scratch.runCommand(ctx, &text, &said, argv...)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil {
					return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(said.String()))
				}
				runs.add(np, i, time.Since(begun), text.String())
			}
		}
	}
	s.progress.clear()
	return runs.write(out, p.counts)
}

// add takes what a program has written.
func (r *programRuns) add(np, mpi int, took time.Duration, text string) {
	if r.took[np] == nil {
		r.took[np] = make([][]float64, len(r.mpis))
	}
	r.took[np][mpi] = append(r.took[np][mpi], took.Seconds())
	for line := range strings.Lines(text) {
		key, value, ok := figureIn(line)
		if !ok {
			continue
		}
		k := figureKey{np, key}
		if r.of[k] == nil {
			r.keys = append(r.keys, k)
			r.of[k] = make([][]float64, len(r.mpis))
		}
		r.of[k][mpi] = append(r.of[k][mpi], value)
	}
}

// figureIn reads a line of figures: all of its words are numbers.
func figureIn(line string) (size string, value float64, ok bool) {
	words := strings.Fields(line)
	for i, w := range words {
		f, err := strconv.ParseFloat(w, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return "", 0, false
		}
		if i == min(1, len(words)-1) {
			value = f
		}
	}
	if len(words) > 1 {
		size = words[0]
	}
	return size, value, len(words) > 0
}

// write prints the medians of the rounds, with the least and the most, and the quotients to the first MPI.
func (r *programRuns) write(out io.Writer, counts []int) error {
	for _, m := range r.mpis {
		fmt.Fprintf(out, "%s: %v\n", m.name, &m.library)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "ranks\tsize")
	for i, m := range r.mpis {
		fmt.Fprintf(w, "\t%s", m.name)
		if i > 0 {
			fmt.Fprintf(w, "\t/ %s", r.mpis[0].name)
		}
	}
	fmt.Fprintln(w)
	line := func(np int, size string, of [][]float64) {
		fmt.Fprintf(w, "%d\t%s", np, size)
		for i, values := range of {
			if len(values) == 0 {
				fmt.Fprint(w, "\t-")
			} else {
				fmt.Fprintf(w, "\t%s [%s..%s]", figure(median(values)), figure(slices.Min(values)), figure(slices.Max(values)))
			}
			if i == 0 {
				continue
			}
			var quotients []float64
			for round := range min(len(values), len(of[0])) {
				if of[0][round] > 0 && values[round] > 0 {
					quotients = append(quotients, values[round]/of[0][round])
				}
			}
			if len(quotients) == 0 {
				fmt.Fprint(w, "\t-")
			} else {
				fmt.Fprintf(w, "\t%s", figure(middle(quotients)))
			}
		}
		fmt.Fprintln(w)
	}
	for _, k := range r.keys {
		line(k.np, k.size, r.of[k])
	}
	for _, np := range counts {
		line(np, "whole job, s", r.took[np])
	}
	return w.Flush()
}
