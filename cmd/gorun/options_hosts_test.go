package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	files := map[string]string{"two": "n1 slots=2\nn2:3\n", "one": "n3\n", "mark": "\ufeffn1 slots=2\r\n", "bad": "n1\nn2 slot=3\n", "lines": "p1\np1\np2\n", "grid": "g1 4 all.q@g1 UNDEFINED\ng2 2 all.q@g2 UNDEFINED\n", "none": "\n", "/root/.mpiexec.hydra.conf": "-genv CONF 1\n"}
	for _, c := range []struct {
		name, command, args, environ string
		want                         string // hosts, ranks
		err                          string
	}{
		{name: "a list", args: "-H a:2,b a", want: "a:2 b:1, 0*a"},
		{name: "a range", args: "-H n[08-10] a", want: "n08:1 n09:1 n10:1, 0*a"},
		{name: "repeated", args: "-H a -host a:2 a", want: "a:3, 0*a"},
		{name: "every name of it", args: "--hosts a --hostlist b -machinelist c -hosts-group d[1-2] a", want: "a:1 b:1 c:1 d1:1 d2:1, 0*a"},
		{name: "a file", args: "--hostfile two a", want: "n1:2 n2:3, 0*a"},
		{name: "-f", args: "-f two -n 4 a", want: "n1:2 n2:3, 4*a"},
		{name: "a file of Windows", args: "--hostfile mark a", want: "n1:2, 0*a"},
		{name: "-machinefile twice", args: "-machinefile two --hostfile one a", want: "n1:2 n2:3 n3:-1, 0*a"},
		{name: "some of a file", args: "-f two -H n2 a", want: "n2:3, 0*a"},
		{name: "a host that the file has not", args: "-f two -H n9 a", err: `-H: found "n9", expected hosts of the hostfile beside it: n1, n2`},
		{name: "a default", args: "--default-hostfile two a", want: "n1:2 n2:3, 0*a"},
		{name: "a default that does not count", args: "--default-hostfile two --hostfile one a", want: "n3:-1, 0*a"},
		{name: "a default beside -H", args: "--default-hostfile two -H n3 a", want: "n3:1, 0*a"},
		{name: "a default beside -H of a program", args: "--default-hostfile two a : -H n3 b", want: "n3:1, 1*a 1*b@n3"},
		{name: "no default", args: "--default-hostfile none a", want: ", 0*a"},
		{name: "no file", args: "--hostfile nosuch a", err: `--hostfile: found "nosuch", expected a file that can be read: file does not exist`},
		{name: "a bad line", args: "-f bad a", err: `-f: bad:2: found "slot=3", expected slots=N`},
		{name: "from the environment", args: "a", environ: "HYDRA_HOST_FILE=two", want: "n1:2 n2:3, 0*a"},
		{name: "Intel's", args: "a", environ: "I_MPI_HYDRA_HOST_FILE=two", want: "n1:2 n2:3, 0*a"},
		{name: "Intel's group", args: "a", environ: "I_MPI_HYDRA_HOSTS_GROUP=x[1-2]", want: "x1:1 x2:1, 0*a"},
		{name: "Open MPI's", args: "a", environ: "OMPI_MCA_orte_default_hostfile=two", want: "n1:2 n2:3, 0*a"},
		{name: "Open MPI 5's, as an option", args: "--prtemca prte_default_hostfile two a", want: "n1:2 n2:3, 0*a"},
		{name: "the command line wins", args: "-f one a", environ: "HYDRA_HOST_FILE=two", want: "n3:-1, 0*a"},
		{name: "a bad one of the environment", args: "a", environ: "HYDRA_HOST_FILE=nosuch", err: `HYDRA_HOST_FILE: found "nosuch"`},
		{name: "of both programs", args: "-H a a : -H a b", want: "a:1, 1*a@a 1*b@a"},
		{name: "of one program", args: "-H a a : b", want: "a:1, 1*a@a 1*b"},
		{name: "different", args: "-H a a : -H b b", want: "a:1 b:1, 1*a@a 1*b@b"},
		{name: "different, of the job", command: "mpiexec", args: "-host a a : -host b b", want: "a:1 b:1, 1*a 1*b"},
		{name: "-machine, a file", command: "mpiexec", args: "-machine two a", want: "n1:2 n2:3, 0*a"},
		{name: "-machine, hosts", command: "mpiexec", args: "-machine x,y a", want: "x:1 y:1, 0*a"},
		{name: "-machine is Hydra's", args: "-machine x a", err: "-machine: unknown option"},
		{name: "the command line of an outer mpirun", args: "a", environ: "OMPI_MCA_ess_base_jobid=1 OMPI_MCA_orte_default_hostfile=two", want: ", 0*a"},
		{name: "Slurm's", args: "a", environ: "SLURM_JOB_NODELIST=n[1-2],x SLURM_TASKS_PER_NODE=4(x2),3", want: "n1:4 n2:4 x:3, 0*a"},
		{name: "Slurm's CPUs", args: "-np 3 a", environ: "SLURM_JOB_NODELIST=n1 SLURM_JOB_CPUS_PER_NODE=8", want: "n1:8, 3*a"},
		{name: "Slurm's, of another number", args: "a", environ: "SLURM_JOB_NODELIST=n[1-3] SLURM_TASKS_PER_NODE=4(x2)", err: `SLURM_JOB_NODELIST: SLURM_TASKS_PER_NODE: found "4(x2)", expected numbers for the 3 nodes of n[1-3]`},
		{name: "Slurm's, no number", args: "a", environ: "SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=many", err: `SLURM_JOB_NODELIST: SLURM_TASKS_PER_NODE: found "many"`},
		{name: "Slurm's, no list", args: "a", environ: "SLURM_JOB_NODELIST=n[1-", err: `SLURM_JOB_NODELIST: found "n[1-"`},
		{name: "Slurm's tasks", args: "a", environ: "SLURM_JOB_NODELIST=n[1-3] SLURM_NTASKS=4 SLURM_JOB_CPUS_PER_NODE=8(x3)", want: "n1:2 n2:1 n3:1, 0*a"},
		{name: "Slurm's tasks, fewer than nodes", args: "a", environ: "SLURM_JOB_NODELIST=n[1-3] SLURM_NTASKS=2", want: "n1:1 n2:1, 0*a"},
		{name: "Slurm's tasks alone", args: "a", environ: "SLURM_NTASKS=4", want: "localhost:4, 0*a"},
		{name: "Slurm's tasks, no number", args: "a", environ: "SLURM_JOB_NODELIST=n1 SLURM_NTASKS=4x", err: `SLURM_JOB_NODELIST: SLURM_NTASKS: found "4x", expected a number`},
		{name: "Slurm's tasks alone, none", args: "a", environ: "SLURM_NTASKS=0", err: `SLURM_NTASKS: found "0", expected a number`},
		{name: "Slurm's tasks for each node, none", args: "a", environ: "SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=0", err: `SLURM_JOB_NODELIST: SLURM_TASKS_PER_NODE: found "0"`},
		{name: "Slurm's tasks for each node, open", args: "a", environ: "SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2(x2", err: `SLURM_JOB_NODELIST: SLURM_TASKS_PER_NODE: found "2(x2"`},
		{name: "outside of Slurm's allocation", args: "-H n1,n7 a", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2]", err: "host n7 of -H or a hostfile is not in the allocation, Slurm's job 5 with n[1-2]; try --launcher ssh"},
		{name: "a hostfile that disagrees with Slurm's allocation", args: "-f one a", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2]", err: "host n3 of -H or a hostfile is not in the allocation, Slurm's job 5 with n[1-2]; try --launcher ssh"},
		{name: "outside of Slurm's allocation, by ssh", args: "--launcher ssh -H n7 a", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2]", want: "n7:1, 0*a"},
		{name: "of Slurm's allocation, with its domain", args: "-H n1.example.org,n2:2 a", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2]", want: "n1.example.org:1 n2:2, 0*a"},
		{name: "of Slurm's allocation, without its domain", args: "-H n1,n2:2 a", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n1.example.org,n2.example.org", want: "n1:1 n2:2, 0*a"},
		{name: "PBS's", args: "a", environ: "PBS_NODEFILE=lines", want: "p1:2 p2:1, 0*a"},
		{name: "PBS's, empty", args: "a", environ: "PBS_NODEFILE=none", err: `PBS_NODEFILE: found no hosts in "none"`},
		{name: "PBS's, not there", args: "a", environ: "PBS_NODEFILE=nosuch", err: `PBS_NODEFILE: found "nosuch"`},
		{name: "LSF's", args: "a", environ: "LSB_DJOB_HOSTFILE=lines", want: "p1:2 p2:1, 0*a"},
		{name: "LSF's counts", args: "a", environ: "LSB_MCPU_HOSTS=p1·2·p2·1 LSB_HOSTS=p1", want: "p1:2 p2:1, 0*a"},
		{name: "LSF's counts, odd", args: "a", environ: "LSB_MCPU_HOSTS=p1·2·p2", err: `LSB_MCPU_HOSTS: found "p1 2 p2", expected hosts and numbers`},
		{name: "LSF's words", args: "a", environ: "LSB_HOSTS=p1·p1·p2", want: "p1:2 p2:1, 0*a"},
		{name: "OAR's", args: "a", environ: "OAR_NODEFILE=lines", want: "p1:2 p2:1, 0*a"},
		{name: "Slurm's name of this node", args: "a", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2] SLURMD_NODENAME=n1", want: "localhost:-1 n2:-1, 0*a"},
		{name: "Slurm's name of this node, by a program", args: "-H n2:3 a : -H n1 b", environ: "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2] SLURMD_NODENAME=n1", want: "n2:3 localhost:1, 1*a@n2 1*b@localhost"},
		{name: "gridengine's", args: "a", environ: "PE_HOSTFILE=grid", want: "g1:4 g2:2, 0*a"},
		{name: "gridengine's, without slots", args: "a", environ: "PE_HOSTFILE=lines", err: `PE_HOSTFILE: lines: found "p1", expected a host and its number of slots`},
		{name: "outside of gridengine's job", args: "-H g1,n7 a", environ: "JOB_ID=5 PE_HOSTFILE=grid", err: "host n7 of -H or a hostfile is not in the allocation, gridengine's job 5 with grid; try --launcher ssh"},
		{name: "of gridengine's job, malformed", args: "-H g1 a", environ: "JOB_ID=5 PE_HOSTFILE=lines", err: `PE_HOSTFILE: lines: found "p1", expected a host and its number of slots; --launcher ssh does without it`},
		{name: "-H before an allocation", args: "-H n7 a", environ: "SLURM_JOB_NODELIST=n[1-2]", want: "n7:1, 0*a"},
		{name: "a hostfile before an allocation", args: "-f two a", environ: "PBS_NODEFILE=lines", want: "n1:2 n2:3, 0*a"},
		{name: "inside a job of the allocation", args: "a", environ: "SLURM_JOB_NODELIST=n[1-2] GORUN_JOB=x", want: ", 0*a"},
		{name: "all CPUs", command: "mpirun", args: "a", want: ", 7*a"},
		{name: "not of several programs", command: "mpirun", args: "a : b", want: ", 1*a 1*b"},
		{name: "one rank", command: "mpiexec", args: "a", want: ", 0*a"},
		{name: "without slots, under Hydra", command: "mpiexec", args: "-f one -n 2 a", want: "n3:1, 2*a"},
		{name: "another number of slots", args: "-f two -H n1:7,n2 a", want: "n1:7 n2:3, 0*a"},
		{name: "some of a file, apart", args: "-f two -n 2 -H n2 a : -n 1 b", want: "n1:2 n2:3, 2*a@n2 1*b"},
		{name: "the most of both", args: "-H a:2,b a : -H b:3,b b", want: "a:2 b:4, 1*a@a,b 1*b@b"},
	} {
		command := c.command
		if command == "" {
			command = "gorun"
		}
		line := under(command, files, strings.Fields(c.args)...)
		line.cpus = func() int { return 7 }
		for setting := range strings.FieldsSeq(c.environ) {
			line.environ = append(line.environ, strings.ReplaceAll(setting, "·", " "))
		}
		req, err := parse(line)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: %s: error %v, want %s", c.name, c.args, err, c.err)
			}
			continue
		}
		var hosts []string
		for _, h := range req.job.Hosts {
			hosts = append(hosts, fmt.Sprintf("%s:%d", h.Name, h.Slots))
		}
		got := strings.Join(hosts, " ") + ", "
		for i, a := range apps(req.job) {
			a, _, _ = strings.Cut(a, " ")
			if i > 0 {
				got += " "
			}
			got += a
			if len(req.job.Apps) > i && req.job.Apps[i].Hosts != nil {
				got += "@" + strings.Join(req.job.Apps[i].Hosts, ",")
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %s: got %q, %v; want %q", c.name, c.args, got, err, c.want)
		}
	}
}

// The launcher is srun for other machines in an allocation of Slurm, qrsh in gridengine's, unless the user says otherwise.
func TestLauncherOfAnAllocation(t *testing.T) {
	const inside, grid = "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2(x2)", "JOB_ID=5 PE_HOSTFILE=grid"
	for _, c := range []struct{ args, environ, want string }{
		{"a", inside, "slurm"},
		{"-H n2 a", inside, "slurm"},
		{"--launcher slurm a", inside, "slurm"},
		{"--launcher ssh a", inside, "ssh"},
		{"--rsh rsh a", inside, ""},
		{"-H localhost a", inside, ""},
		{"-H n2 a", inside + " PMI_RANK=0", ""},
		{"-H n2 a", "", ""},
		{"--launcher fork -H x,y a", inside, "fork"},
		{"a", grid, "sge"},
		{"--launcher ssh a", grid, "ssh"},
		{"--rsh rsh a", grid, ""},
		{"-H localhost a", grid, ""},
		{"a", "PE_HOSTFILE=grid", ""}, // no job of gridengine
	} {
		line := under("gorun", map[string]string{"grid": "n1 2 q UNDEFINED\nn2 2 q UNDEFINED\n"}, strings.Fields(c.args)...)
		line.environ = append(line.environ, strings.Fields(c.environ)...)
		if req, err := parse(line); err != nil || req.job.Agents.Launcher != c.want {
			t.Errorf("%s, %s: got %q, %v, want %q", c.environ, c.args, req.job.Agents.Launcher, err, c.want)
		}
	}
}

// A hostfile may be a pipe, as with --hostfile <(nodes).
func TestHostfileIsReadOnce(t *testing.T) {
	for _, option := range []string{"--hostfile", "-machine", "--default-hostfile"} {
		files := map[string]string{"pipe": "n1 slots=2\n"}
		c := under("mpiexec", files, option, "pipe", "a")
		read := c.readFile
		c.readFile = func(name string) ([]byte, error) {
			defer func() { files[name] = "" }()
			return read(name)
		}
		if req, err := parse(c); err != nil || len(req.job.Hosts) != 1 || req.job.Hosts[0].Slots != 2 {
			t.Errorf("%s: hosts %v, %v; want n1 with 2 slots", option, req.job.Hosts, err)
		}
	}
}

func TestUserOfAHost(t *testing.T) {
	files := map[string]string{"f": "a\nb user=ann\n"}
	for _, c := range []struct{ args, want string }{{"-H me@a,b prog", "me@a @b"}, {"-f f -H me@a,b prog", "me@a ann@b"}, {"-f f prog", "@a ann@b"}} {
		req, err := parse(under("gorun", files, strings.Fields(c.args)...))
		var got []string
		for _, h := range req.job.Hosts {
			got = append(got, h.User+"@"+h.Name)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, %v, want %s", c.args, got, err, c.want)
		}
	}
}
