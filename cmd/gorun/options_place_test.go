package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestPlace(t *testing.T) {
	files := map[string]string{"ranks": "rank 0=a slot=0\n", "empty": "\n"}
	for _, c := range []struct {
		name    string
		command string // gorun is called as
		args    string
		environ string
		want    string // np map rank bind perhost cpus
		err     string
	}{
		{name: "nothing", args: "a", want: "0 - - - 0 -"},
		{name: "nothing, mpirun", command: "mpirun", args: "-np 2 a", want: "2 - - openmpi 0 -"},
		{name: "nothing, mpiexec", command: "mpiexec", args: "-n 2 a", want: "2 - - none 0 -"},
		{name: "words", args: "-np 4 --map-by core:PE=2 -rank-by fill --bind-to hwthread a", want: "4 core:PE=2 fill hwthread 0 -"},
		{name: "Hydra's", command: "mpiexec", args: "-n 4 -bind-to core -map-by numa a", want: "4 numa - core:overload-allowed 0 -"},
		{name: "Hydra's map alone", command: "mpiexec", args: "-n 4 -map-by numa a", want: "4 numa - none 0 -"},
		{name: "Hydra's lists", command: "mpiexec", args: "-n 4 -bind-to user:0,1 a", want: "4 - - user:0,1 0 -"},
		{name: "Hydra's environment", command: "mpiexec", args: "-n 4 a", environ: "HYDRA_BINDING=core", want: "4 - - core:overload-allowed 0 -"},
		{name: "modifiers alone", args: "-np 4 --map-by :span --map-by core --use-hwthread-cpus --nolocal --oversubscribe a", want: "4 core:span:hwtcpus:nolocal:oversubscribe - - 0 -"},
		{name: "ranks a host", args: "-ppn 2 a", want: "0 - - - 2 -"},
		{name: "Intel's", args: "-np 8 -grr 2 a", want: "8 - - - 2 -"},
		{name: "Intel's, one", command: "mpiexec", args: "-n 8 -rr a", want: "8 - - none 1 -"},
		{name: "ranks a host and no more", args: "-N 2 a", want: "0 ppr:2:node - - 0 -"},
		{name: "one a host", args: "--pernode a", want: "0 ppr:1:node - - 0 -"},
		{name: "ranks a package", args: "--npersocket 3 a", want: "0 ppr:3:package - - 0 -"},
		{name: "ppr", args: "-np 2 --ppr 2:numa a", want: "2 ppr:2:numa - - 0 -"},
		{name: "seq", args: "--map-by seq -H a,b a", want: "0 seq - - 0 -"},
		{name: "cores a rank", args: "-np 2 --cpus-per-proc 2 a", want: "2 :pe=2 - - 0 -"},
		{name: "CPUs", args: "-np 2 --cpu-list 0-3 a", want: "2 - - - 0 0-3"},
		{name: "a rankfile", args: "-rf ranks a", want: "0 - - - 0 -"},
		{name: "a rankfile in the mapping", args: "--map-by rankfile:file=ranks a", want: "0 rankfile - - 0 -"},
		{name: "a rankfile and a modifier", args: "--rankfile ranks --use-hwthread-cpus a", want: "0 rankfile:hwtcpus - - 0 -"},
		{name: "old words", args: "-np 2 --bynode --bind-to-socket a", want: "2 node - socket 0 -"},
		{name: "Open MPI's parameters", command: "mpirun", args: "-np 2 --mca rmaps_base_mapping_policy socket --mca hwloc_base_binding_policy core a", want: "2 socket - core 0 -"},
		{name: "no number", args: "-ppn x a", err: `-ppn: found "x", expected a number of ranks for each host, 1 or more`},
		{name: "none a host", args: "-N 0 a", err: `-N: found "0", expected a number of ranks for each node`},
		{name: "no such file", args: "--rankfile nosuch a", err: `--rankfile: found "nosuch"`},
		{name: "an empty file", args: "--rankfile empty a", err: `--rankfile: found "empty", expected a file with a line for each rank`},
		{name: "no such word", args: "--display maps a", err: `--display: found "maps", expected map, allocation, bind or topo`},
		{name: "memory", command: "mpiexec", args: "-membind local a", err: "-membind: not supported: the kernel places memory"},
	} {
		command := c.command
		if command == "" {
			command = "gorun"
		}
		line := under(command, files, strings.Fields(c.args)...)
		if c.environ != "" {
			line.environ = append(line.environ, c.environ)
		}
		req, err := parse(line)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: %s: error %v, want %s", c.name, c.args, err, c.err)
			}
			continue
		}
		j := req.job
		dash := func(s string) string {
			if s == "" {
				return "-"
			}
			return s
		}
		got := fmt.Sprintf("%d %s %s %s %d %s", j.NP, dash(j.Placing.Map), dash(j.Placing.Rank), dash(j.Placing.Bind), j.Placing.PerHost, dash(j.Placing.CPUs))
		if err != nil || got != c.want {
			t.Errorf("%s: %s: got %s, %v, want %s", c.name, c.args, got, err, c.want)
		}
	}
}

func TestDisplay(t *testing.T) {
	for args, want := range map[string]string{
		"--display map,bind":                            "[map bind] false false",
		"--display allocation --display TOPO:parseable": "[allocation topo] false true",
		"--display-map --display-topo":                  "[map topo] false true",
		"--display-devel-map --print-rank-map":          "[map bind] false false",
		"--display-allocation":                          "[allocation] false false",
		"--do-not-launch":                               "[map] true false",
		"--do-not-launch --display bind":                "[bind] true false",
		"--do-not-launch=false":                         "[] false false",
	} {
		req, err := parse(line(nil, append(strings.Fields(args), "a")...))
		if got := fmt.Sprint(req.show.what, req.job.Placing.DryRun, req.job.Placing.Topology); err != nil || strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%s: got %s, %v, want %s", args, got, err, want)
		}
	}
}
