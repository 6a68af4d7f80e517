package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/gorun-mpi/gorun/rank"
)

// edge is how many columns "head" prints at either end of a row.
const edge = 8

// clip is the part of a row that is printed, and the number of columns left
// out between its halves.
func clip(row []int32, how string) ([]int32, int) {
	if how != printHead || len(row) <= 2*edge {
		return row, 0
	}
	short := make([]int32, 0, 2*edge)
	short = append(short, row[:edge]...)
	return append(short, row[len(row)-edge:]...), len(row) - 2*edge
}

// appendRow appends a row as the original prints it: left-justified columns of
// six, a bar at the end. omitted columns stand behind the first eight.
func appendRow(b []byte, r int, row []int32, omitted int) []byte {
	b = fmt.Appendf(b, "Rank %d | ", r)
	for i, v := range row {
		if omitted > 0 && i == edge {
			b = append(b, "...   "...)
		}
		start := len(b)
		b = strconv.AppendInt(b, int64(v), 10)
		for len(b)-start < 6 {
			b = append(b, ' ')
		}
	}
	return append(b, "|\n"...)
}

// printMatrices brings the rows of the call in the first slot to rank 0, one
// at a time, and prints them there.
func (e *exchange) printMatrices() error {
	if e.params.print == printNone {
		return nil
	}
	out := bufio.NewWriter(e.out)
	for tag, m := range []struct {
		title string
		row   []int32
	}{{"send", e.slots[0].send}, {"recv", e.slots[0].recv}} {
		row, omitted := clip(m.row, e.params.print)
		if e.comm.Rank() > 0 {
			if err := rank.Send(e.ctx, e.comm, row, 0, tag); err != nil {
				return err
			}
			continue
		}
		if err := e.printMatrix(out, m.title, row, omitted, tag); err != nil {
			return err
		}
	}
	return out.Flush()
}

// printMatrix is rank 0's part: its own row, then those of the others.
func (e *exchange) printMatrix(out io.Writer, title string, row []int32, omitted, tag int) error {
	if _, err := fmt.Fprintf(out, "-----%s buffs-----\n", title); err != nil {
		return err
	}
	line := appendRow(nil, 0, row, omitted)
	other := make([]int32, len(row))
	for r := range e.comm.Size() {
		if r > 0 {
			if _, err := rank.Recv(e.ctx, e.comm, other, r, tag); err != nil {
				return err
			}
			line = appendRow(line[:0], r, other, omitted)
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	if omitted > 0 {
		_, err := fmt.Fprintf(out, "(%d of %d columns are left out in the middle; --print full shows them)\n", omitted, len(row)+omitted)
		return err
	}
	return nil
}
