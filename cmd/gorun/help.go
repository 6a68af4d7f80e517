package main

import (
	"fmt"
	"strings"
)

const helpHead = `Usage: gorun [options] program [arguments] [: [options] program [arguments]]...

Starts the ranks of a parallel program and waits for them. Programs written
for MPI (MPICH, Open MPI, mpi4py) and in Go (package rank) find each other.
Long options may be written with one dash, as mpirun has them: -np 4, -wdir /tmp.
Options marked * are of the program that follows, all else of the whole job.
`

const helpTail = `
Output comes in whole lines; standard input goes to rank 0. Signals are passed
on; INT and TERM end the job, a second one at once.

Exit status: that of the first rank that failed, 128+N when signal N ended it;
124 after --timeout, 125 when gorun itself failed, 126 for a program that cannot
be run, 127 for one that is not found, 2 for a wrong command line.

Examples:
  gorun -np 4 ./a2a -m 32
  gorun -np 4 --emulate mlx5_0,mlx5_1 ./a2a -m 4096 -d mlx5_0,mlx5_1
  gorun --launcher fork -H a:2,b:2 ./a2a -m 32
  gorun -np 2 -x OMP_NUM_THREADS=4 --timeout 1m30s -- ./solver --flag-of-its-own
  gorun -np 1 ./master : -np 3 -wdir /scratch ./worker

gorun --man | man -l - is the manual: other names of these options, what mpirun's and
mpiexec's other options do here, and what differs when gorun is called by their names.
`

// help is the text of --help, made from the table.
func help() string {
	table := options()
	const width = 30 // of the left column; what is longer has a line of its own
	var b strings.Builder
	b.WriteString(helpHead)
	for _, family := range families {
		heading := "\n" + family + ":\n"
		for i := range table {
			if table[i].family == family {
				left, mark := helpLeft(&table[i]), " "
				if table[i].local {
					mark = "*"
				}
				if len(left) > width {
					left += fmt.Sprintf("\n   %*s", width, "")
				}
				fmt.Fprintf(&b, "%s %s %-*s  %s\n", heading, mark, width, left, table[i].help)
				heading = ""
			}
		}
	}
	b.WriteString(helpTail)
	return b.String()
}

// helpLeft is the left column of the help: "-H, --host NAME[:SLOTS],...".
func helpLeft(o *option) string {
	var forms []string
	if o.short != "" {
		forms = append(forms, "-"+o.short)
	}
	for _, n := range o.names {
		if n != o.short {
			forms = append(forms, shown(o, n))
		}
	}
	left := strings.Join(forms, ", ")
	if o.value != "" {
		left += " " + o.value
	}
	return left
}
