package main

import (
	"fmt"
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

// Each parameter does what its option does, by the names of Open MPI 4 and 5, in --mca and in the environment.
func TestParametersStandForOptions(t *testing.T) {
	untried := map[string]bool{}
	for _, p := range standIns {
		untried[p.name] = true
	}
	for _, c := range []struct{ parameter, value, option string }{
		{"orte_default_hostfile", "hosts", "--hostfile hosts"},
		{"orte_default_dash_host", "a:2,b", "--host a:2,b"}, {"orte_default_dash_host", "none", ""},
		{"plm_rsh_agent", "oarsh -q", "--rsh|oarsh -q"}, {"plm_ssh_agent", "kubexec.sh : rsh", "--rsh kubexec.sh"}, {"plm_rsh_agent", "ssh : rsh", ""},
		{"orte_rsh_agent", "oarsh", "--rsh oarsh"}, {"plm_rsh_args", "-p 2222", "--rsh-args|-p 2222"}, {"plm_ssh_args", "-q", "--rsh-args -q"},
		{"plm_rsh_num_concurrent", "7", "--launch-fanout 7"}, {"plm_ssh_no_tree_spawn", "1", "--launch-tree 0"}, {"plm_rsh_no_tree_spawn", "0", ""},
		{"rmaps_base_mapping_policy", "core", "--map-by core"}, {"rmaps_default_mapping_policy", "core", "--map-by core"}, {"rmaps_base_schedule_policy", "node", "--map-by node"},
		{"rmaps_base_byslot", "1", "--map-by slot"}, {"rmaps_base_bycore", "1", "--map-by core"}, {"rmaps_base_bynode", "t", "--map-by node"},
		{"rmaps_base_pattern", "2:socket", "--ppr 2:socket"}, {"rmaps_ppr_pattern", "2:node", "--ppr 2:node"},
		{"rmaps_base_ranking_policy", "node", "--rank-by node"}, {"rmaps_base_pernode", "yes", "--npernode 1"}, {"rmaps_ppr_pernode", "1", "--npernode 1"},
		{"rmaps_base_n_pernode", "3", "--npernode 3"}, {"rmaps_ppr_n_pernode", "3", "--npernode 3"},
		{"rmaps_base_n_persocket", "3", "--npersocket 3"}, {"rmaps_ppr_n_persocket", "3", "--npersocket 3"},
		{"rmaps_base_cpus_per_rank", "2", "--cpus-per-rank 2"}, {"rmaps_base_cpus_per_proc", "2", "--cpus-per-rank 2"},
		{"rmaps_base_no_schedule_local", "1", "--nolocal"}, {"rmaps_base_no_schedule_local", "0", ""},
		{"rmaps_base_oversubscribe", "1", "--oversubscribe"}, {"rmaps_base_no_oversubscribe", "true", "--nooversubscribe"},
		{"rmaps_rank_file_path", "ranks", "--rankfile ranks"}, {"orte_rankfile", "ranks", "--rankfile ranks"},
		{"hwloc_base_binding_policy", "none", "--bind-to none"}, {"hwloc_default_binding_policy", "core", "--bind-to core"},
		{"hwloc_base_bind_to_core", "1", "--bind-to core"}, {"hwloc_base_bind_to_socket", "1", "--bind-to socket"},
		{"hwloc_base_cpu_list", "0-1", "--cpu-list 0-1"}, {"hwloc_default_cpu_list", "0", "--cpu-list 0"}, {"hwloc_base_slot_list", "1", "--cpu-list 1"}, {"hwloc_base_cpu_set", "0", "--cpu-set 0"},
		{"hwloc_base_use_hwthreads_as_cpus", "1", "--use-hwthread-cpus"}, {"hwloc_use_hwthreads_as_cpus", "1", "--use-hwthread-cpus"},
		{"hwloc_base_report_bindings", "1", "--report-bindings"},
		{"rmaps_base_display_map", "1", "--display map"}, {"rmaps_base_display_devel_map", "1", "--display map-devel"}, {"rmaps_base_display_diffable_map", "1", "--display map"},
		{"rmaps_base_display_topo_with_map", "1", "--display topo"}, {"orte_display_alloc", "1", "--display allocation"}, {"ras_base_display_alloc", "1", "--display allocation"},
		{"orte_display_devel_alloc", "1", "--display allocation"}, {"ras_base_display_devel_alloc", "1", "--display allocation"},
		{"orte_do_not_launch", "1", "--do-not-launch"}, {"orte_tag_output", "1", "--tag-output"}, {"prte_tag_output", "1", "--tag-output"}, {"orte_timestamp_output", "1", "--timestamp-output"},
		{"orte_output_filename", "logs", "--output-filename logs"}, {"orte_xml_output", "1", "--xml"}, {"orte_xml_file", "x", "--xml-file x"},
		{"iof_base_redirect_app_stderr_to_stdout", "1", "--merge-stderr-to-stdout"}, {"orte_execute_quiet", "1", "--quiet"},
		{"ess_base_stream_buffering", "0", "--stream-buffering 0"}, {"ess_base_stream_buffering", "-1", ""},
		{"ess_base_forward_signals", "USR2", "--forward-signals USR2"}, {"ess_hnp_forward_signals", "none", ""},
		{"orte_enable_recovery", "1", "--enable-recovery"}, {"orte_max_restarts", "2", "--max-restarts 2"}, {"prte_max_restarts", "-1", ""}, {"odls_base_sigkill_timeout", "3", "--grace 3"},
	} {
		delete(untried, version4(c.parameter))
		files := map[string]string{"hosts": "a\nb slots=2\n", "ranks": "rank 0=a slot=0\nrank 1=a slot=1\n"}
		as := func(environ string, args ...string) string {
			l := under("mpirun", files, append(args, "-np", "2", "prog")...)
			if environ != "" {
				l.environ = append(l.environ, environ)
			}
			got, err := parse(l)
			if err != nil {
				t.Fatalf("%s: %v", c.parameter, err)
			}
			got.job.Env, got.written, got.warnings = nil, nil, nil
			return fmt.Sprintf("%+v", got)
		}
		want := strings.Split(c.option, "|")
		if len(want) == 1 {
			want = strings.Fields(c.option)
		}
		expect := as("", want...)
		if got := as("", "--mca", c.parameter, c.value); got != expect {
			t.Errorf("--mca %s %s:\n got %s\nwant %s", c.parameter, c.value, got, expect)
		}
		if got := as("OMPI_MCA_" + c.parameter + "=" + c.value); got != expect {
			t.Errorf("OMPI_MCA_%s=%s:\n got %s\nwant %s", c.parameter, c.value, got, expect)
		}
	}
	for name := range untried {
		t.Errorf("%s is not tried", name)
	}
}

func TestMappedParametersHaveOptions(t *testing.T) {
	for _, p := range standIns {
		if longOption(options(), p.option) == nil && !slices.Contains(owed, p.option) {
			t.Errorf("%s stands for --%s, which is in no table", p.name, p.option)
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
