package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFilesOfParameters(t *testing.T) {
	files := map[string]string{
		"tune": "# comment\n-mca btl self,vader --mca pml 'ob1'\n-x A=1 -x HOME\nmca_base_env_list = B=2;C=3\nopal_x=7\n-x D = 4\n",
		"am":   "btl_tcp_if_include = eth0\nx = a b\n\nempty =\n",
		"bad":  "\nword\n",
		"rm":   "orte_tag_output = 1\nrmaps_seq_x = 2\n",
	}
	for _, c := range []struct {
		args, want string // the environment
		err        string
	}{
		{args: "-envnone --tune tune prog", want: "OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 A=1 HOME=/root B=2 C=3 OMPI_MCA_opal_x=7 D=4"},
		{args: "-envnone -am am prog", err: `-am: am:4: found "empty", expected NAME = VALUE`},
		{args: "-envnone --tune tune,bad prog", err: `--tune: bad:2: found "word", expected NAME = VALUE`},
		{args: "-am nosuch prog", err: `-am: found "nosuch", expected a file`},
		{args: "-envnone --am rm prog", want: "OMPI_MCA_orte_tag_output=1"},
	} {
		got, err := parse(under("gorun", files, strings.Fields(c.args)...))
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %s", c.args, err, c.err)
			}
			continue
		}
		if err != nil || strings.Join(got.job.Env, " ") != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.args, got.job.Env, err, c.want)
		}
	}
}

// Parameters of Open MPI's launcher do what they did, from the command line, a
// file or the environment, and an option given as such wins.
func TestParametersAreFollowed(t *testing.T) {
	files := map[string]string{"am": "orte_tag_output = true\n"}
	for _, c := range []struct {
		args, environ string
		tag, quiet    bool
	}{
		{args: "--mca orte_tag_output 1 prog", tag: true},
		{args: "--mca orte_tag_output 0 prog"},
		{args: "-am am prog", tag: true},
		{args: "prog", environ: "OMPI_MCA_orte_tag_output=1", tag: true},
		{args: "--tag-output=false prog", environ: "OMPI_MCA_orte_tag_output=1"},
		{args: "--mca orte_tag_output 0 --mca orte_execute_quiet 1 prog", environ: "OMPI_MCA_orte_tag_output=0", quiet: true},
	} {
		line := under("mpirun", files, strings.Fields(c.args)...)
		if c.environ != "" {
			line.environ = append(line.environ, c.environ)
		}
		got, err := parse(line)
		if err != nil || (got.job.Output.Prefix != "") != c.tag || got.quiet != c.quiet || len(got.notes) > 0 {
			t.Errorf("%s with %s: tags %v, quiet %v, notes %v, %v; want %v, %v, none", c.args, c.environ, got.job.Output.Prefix, got.quiet, got.notes, err, c.tag, c.quiet)
		}
	}
}

func TestMappedParametersHaveOptions(t *testing.T) {
	for parameter, name := range mappedParameters() {
		if longOption(options(), name) == nil && !slices.Contains(owed, name) {
			t.Errorf("%s stands for --%s, which is in no table", parameter, name)
		}
	}
}

func TestVariablesHaveOptions(t *testing.T) {
	for _, v := range variables() {
		for _, name := range append(slices.Clone(v.unless), v.option) {
			if name != "" && longOption(options(), name) == nil && !slices.Contains(owed, name) {
				t.Errorf("%s: --%s is in no table", v.name, name)
			}
		}
	}
}

func TestVariables(t *testing.T) {
	files := map[string]string{
		"conf":                      "-genv CONF 1 -genv BOTH conf\n-timeout 9\n# comment\n",
		"/root/.mpiexec.hydra.conf": "-genv HOMECONF 1\n",
		"prog":                      "-n 3 prog\n",
		"bad":                       "--frob\n",
	}
	for _, c := range []struct {
		name, command, args string
		environ             []string
		timeout             time.Duration
		env                 string // what is set besides the environment
		verbose             int
		err                 string
	}{
		{name: "a timeout", args: "prog", environ: []string{"MPIEXEC_TIMEOUT=90"}, timeout: 90 * time.Second},
		{name: "Intel's", args: "prog", environ: []string{"I_MPI_JOB_TIMEOUT=9"}, timeout: 9 * time.Second},
		{name: "none", args: "prog", environ: []string{"MPIEXEC_TIMEOUT=-1"}},
		{name: "the option wins", args: "--timeout 7 prog", environ: []string{"MPIEXEC_TIMEOUT=90"}, timeout: 7 * time.Second},
		{name: "a bad one", args: "prog", environ: []string{"MPIEXEC_TIMEOUT=soon"}, err: `MPIEXEC_TIMEOUT: found "soon", expected a time`},
		{name: "Open MPI's list", args: "prog", environ: []string{"OMPI_MCA_mca_base_env_list=B=2;HOME"}, env: "B=2 HOME=/root"},
		{name: "verbose is Hydra's", args: "prog", environ: []string{"HYDRA_DEBUG=1"}},
		{name: "verbose", command: "mpiexec", args: "prog", environ: []string{"HYDRA_DEBUG=1", "HYDRA_CONFIG_FILE=conf"}, verbose: 1, timeout: 9 * time.Second, env: "CONF=1 BOTH=conf"},
		{name: "no verbose", command: "mpiexec", args: "prog", environ: []string{"HYDRA_DEBUG=0", "HYDRA_CONFIG_FILE=conf"}, timeout: 9 * time.Second, env: "CONF=1 BOTH=conf"},
		{name: "a file of options", command: "mpiexec", args: "-timeout 8 -genv BOTH line prog", environ: []string{"HYDRA_CONFIG_FILE=conf", "MPIEXEC_TIMEOUT=7"}, timeout: 8 * time.Second, env: "CONF=1 BOTH=conf BOTH=line"},
		{name: "the home's", command: "mpiexec", args: "prog", env: "HOMECONF=1"},
		{name: "not under other names", args: "prog", environ: []string{"HYDRA_CONFIG_FILE=conf"}},
		{name: "no such file", command: "mpiexec", args: "prog", environ: []string{"HYDRA_CONFIG_FILE=nosuch"}, err: `HYDRA_CONFIG_FILE: found "nosuch"`},
		{name: "a bad file", command: "mpiexec", args: "prog", environ: []string{"HYDRA_CONFIG_FILE=bad"}, err: "bad:1: --frob: unknown option"},
	} {
		command := c.command
		if command == "" {
			command = "gorun"
		}
		line := under(command, files, strings.Fields(c.args)...)
		line.environ = append(line.environ, c.environ...)
		got, err := parse(line)
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		env := strings.Join(got.job.Env[len(line.environ):], " ")
		if got.job.Timeout != c.timeout || env != c.env || got.verbose != c.verbose {
			t.Errorf("%s: timeout %v, set %q, verbose %d; want %v, %q, %d", c.name, got.job.Timeout, env, got.verbose, c.timeout, c.env, c.verbose)
		}
	}
}

func TestInheritFromTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{{"prog", 0}, {"-genvall prog", 2}, {"-envall prog", 2}} {
		got, err := parse(line([]string{"HYDRA_ENV=none", "A=1"}, strings.Fields(c.args)...))
		if err != nil || len(got.job.Env) != c.want {
			t.Errorf("%s: %q, %v; want %d entries", c.args, got.job.Env, err, c.want)
		}
	}
}
