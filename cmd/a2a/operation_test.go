package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// rows are the matrices of the first call of an operation, as the original prints them: what the ranks send, and what that gives by hand.
func rows(op operation, ranks, ints int, seed uint64) string {
	p, send := pattern{seed, op}, make([][]int32, ranks)
	for r := range send {
		send[r] = make([]int32, ints)
		p.fill(send[r], 0, r, ranks)
	}
	var b []byte
	for i, m := range [][][]int32{send, op.collective(send)} {
		b = fmt.Appendf(b, "-----%s buffs-----\n", []string{"send", "recv"}[i])
		for r, row := range m {
			b = appendRow(b, r, row, 0)
		}
	}
	return string(b)
}

// Each engine brings what the operation says, on sizes with integers over, small and long: who ran the calls is counted, and each
// is verified on every rank.
func TestOperations(t *testing.T) {
	testenv.NoLeaks(t)
	for op := range operation(len(operations)) {
		for _, engine := range []string{engineInline, engineThread, engineDPA} {
			for _, ranks := range []int{1, 2, 3, 4} {
				for _, ints := range []int{9, 1030, 40_000} {
					name := fmt.Sprintf("%v by %s, %d ranks, %d integers", op, engine, ranks, ints)
					r, out, log := exchangeOn(t, ranks, params{op: op.String(), engine: engine, msgsize: ints * intSize, iterations: 3, warmup: 1, print: printFull, seed: 7})
					if want := rows(op, ranks, ints, 7); out != want && ints < 1000 {
						t.Errorf("%s: printed\n%s\nwant\n%s", name, out, want)
					} else if out != want {
						t.Errorf("%s: printed other matrices than by hand", name)
					}
					if over := op.blocks(ranks) > 1 && ints%ranks > 0; strings.Contains(log, "cannot be shared out") != over {
						t.Errorf("%s: logged %q", name, log)
					}
					if got := callCounts(r.counted); (got.Reductions > 0) != (op.sums() && ranks > 1) || (got.Kernels > 0) != (engine == engineDPA) || ranks > 1 && got.WriteBytes+got.ReadBytes == 0 {
						t.Errorf("%s: one call counts %+v", name, got)
					}
				}
			}
		}
	}
}

// On a device that executes late, out of order and in pieces the data are right all the same.
func TestOperationsOnAdversary(t *testing.T) {
	testenv.NoLeaks(t)
	for _, op := range operations {
		for _, engine := range []string{engineInline, engineDPA} {
			exchangeWith(t, rank.RunConfig{Seed: 3}, 4, params{op: op, engine: engine, msgsize: 40_000, iterations: 5, warmup: 1, print: printNone})
		}
	}
}
