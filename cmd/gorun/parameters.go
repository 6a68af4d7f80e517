package main

import (
	"slices"
	"strings"
)

// parameter is a setting of a parameter of Open MPI's launchers, until it is followed.
type parameter struct{ name, value, spelling string }

// A standIn is a parameter of Open MPI's launchers, of versions 4 and 5, that one of gorun's options stands for.
type standIn struct {
	name   string // of version 4; see version4
	option string
	// value is that of the option; nil: the parameter's, and of an option without a value whether it is given.
	value func(value string) (option string, set bool)
}

// standIns are all of them, in the order of the options.
var standIns = []standIn{
	{name: "orte_default_hostfile", option: "default-hostfile"},
	{name: "orte_default_dash_host", option: "host", value: unlessNone},
	{name: "plm_rsh_agent", option: "rsh", value: firstAgent},
	{name: "orte_rsh_agent", option: "rsh", value: firstAgent},
	{name: "plm_rsh_args", option: "rsh-args"},
	{name: "plm_rsh_num_concurrent", option: "launch-fanout"},
	{name: "plm_rsh_no_tree_spawn", option: "launch-tree", value: whenTrue("0")},
	{name: "rmaps_base_mapping_policy", option: "map-by"},
	{name: "rmaps_base_schedule_policy", option: "map-by"},
	{name: "rmaps_base_byslot", option: "map-by", value: whenTrue("slot")},
	{name: "rmaps_base_bycore", option: "map-by", value: whenTrue("core")},
	{name: "rmaps_base_bynode", option: "map-by", value: whenTrue("node")},
	{name: "rmaps_base_pattern", option: "ppr"},
	{name: "rmaps_ppr_pattern", option: "ppr"},
	{name: "rmaps_base_ranking_policy", option: "rank-by"},
	{name: "rmaps_base_pernode", option: "npernode", value: whenTrue("1")},
	{name: "rmaps_ppr_pernode", option: "npernode", value: whenTrue("1")},
	{name: "rmaps_base_n_pernode", option: "npernode"},
	{name: "rmaps_ppr_n_pernode", option: "npernode"},
	{name: "rmaps_base_n_persocket", option: "npersocket"},
	{name: "rmaps_ppr_n_persocket", option: "npersocket"},
	{name: "rmaps_base_cpus_per_rank", option: "cpus-per-rank"},
	{name: "rmaps_base_cpus_per_proc", option: "cpus-per-rank"},
	{name: "rmaps_base_no_schedule_local", option: "nolocal"},
	{name: "rmaps_base_oversubscribe", option: "oversubscribe"},
	{name: "rmaps_base_no_oversubscribe", option: "nooversubscribe"},
	{name: "rmaps_rank_file_path", option: "rankfile"},
	{name: "orte_rankfile", option: "rankfile"},
	{name: "hwloc_base_binding_policy", option: "bind-to"},
	{name: "hwloc_base_bind_to_core", option: "bind-to", value: whenTrue("core")},
	{name: "hwloc_base_bind_to_socket", option: "bind-to", value: whenTrue("socket")},
	{name: "hwloc_base_cpu_list", option: "cpu-list"},
	{name: "hwloc_base_slot_list", option: "cpu-list"},
	{name: "hwloc_base_cpu_set", option: "cpu-set"},
	{name: "hwloc_base_use_hwthreads_as_cpus", option: "use-hwthread-cpus"},
	{name: "hwloc_base_report_bindings", option: "report-bindings"},
	{name: "rmaps_base_display_map", option: "display", value: whenTrue("map")},
	{name: "rmaps_base_display_devel_map", option: "display", value: whenTrue("map-devel")},
	{name: "rmaps_base_display_diffable_map", option: "display", value: whenTrue("map")},
	{name: "rmaps_base_display_topo_with_map", option: "display", value: whenTrue("topo")},
	{name: "orte_display_alloc", option: "display", value: whenTrue("allocation")},
	{name: "ras_base_display_alloc", option: "display", value: whenTrue("allocation")},
	{name: "orte_display_devel_alloc", option: "display", value: whenTrue("allocation")},
	{name: "ras_base_display_devel_alloc", option: "display", value: whenTrue("allocation")},
	{name: "orte_do_not_launch", option: "do-not-launch"},
	{name: "orte_tag_output", option: "tag-output"},
	{name: "orte_timestamp_output", option: "timestamp-output"},
	{name: "orte_output_filename", option: "output-filename"},
	{name: "orte_xml_output", option: "xml"},
	{name: "orte_xml_file", option: "xml-file"},
	{name: "iof_base_redirect_app_stderr_to_stdout", option: "merge-stderr-to-stdout"},
	{name: "orte_execute_quiet", option: "quiet"},
	{name: "ess_base_stream_buffering", option: "stream-buffering", value: unlessNone},
	{name: "ess_base_forward_signals", option: "forward-signals", value: unlessNone},
	{name: "ess_hnp_forward_signals", option: "forward-signals", value: unlessNone},
	{name: "orte_enable_recovery", option: "enable-recovery"},
	{name: "orte_max_restarts", option: "max-restarts", value: unlessNone},
	{name: "odls_base_sigkill_timeout", option: "grace"},
}

// whenTrue is the value of an option that a true parameter stands for.
func whenTrue(option string) func(string) (string, bool) {
	return func(value string) (string, bool) { return option, isTrue(value) }
}

// isTrue reads a switch as Open MPI does.
func isTrue(value string) bool {
	return slices.Contains([]string{"1", "true", "yes", "enabled", "t", "y"}, strings.ToLower(value))
}

// unlessNone leaves out what means that the parameter is not set.
func unlessNone(value string) (string, bool) { return value, value != "none" && value != "-1" }

// firstAgent is the first of the commands "ssh : rsh". ssh is what gorun runs anyway, with options that serve it.
func firstAgent(value string) (string, bool) {
	first, _, _ := strings.Cut(value, " : ")
	first = strings.TrimSpace(first)
	return first, first != "ssh"
}

// version4 is what Open MPI 4 calls a parameter of Open MPI 5's launcher, PRRTE.
func version4(name string) string {
	for new, old := range map[string]string{"prte_": "orte_", "plm_ssh_": "plm_rsh_", "rmaps_default_": "rmaps_base_", "hwloc_default_": "hwloc_base_"} {
		if rest, ok := strings.CutPrefix(name, new); ok {
			name = old + rest
		}
	}
	return strings.Replace(name, "hwloc_use_", "hwloc_base_use_", 1)
}

// standsFor finds the option for a parameter; nil: there is none.
func standsFor(name string) *standIn {
	at := slices.IndexFunc(standIns, func(p standIn) bool { return p.name == version4(name) })
	if at < 0 {
		return nil
	}
	return &standIns[at]
}

// ofRanks are the parameters of ORTE that MPI's library in the ranks reads, too, or that say where files go.
var ofRanks = []string{"orte_tmpdir_base", "orte_local_tmpdir_base", "orte_remote_tmpdir_base", "orte_top_session_dir", "orte_jobfam_session_dir",
	"orte_no_session_dirs", "orte_create_session_dirs", "orte_base_help_aggregate", "orte_report_silent_errors", "orte_precondition_transports"}

// launchersPart tells whether a parameter is one of Open MPI's launcher alone, which no rank reads.
func launchersPart(name string) bool {
	part, _, _ := strings.Cut(name, "_")
	if part == "orte" {
		return standsFor(name) == nil && !slices.Contains(ofRanks, name)
	}
	return slices.Contains([]string{"errmgr", "ess", "filem", "grpcomm", "iof", "odls", "oob", "plm", "prte", "ras", "regx",
		"rmaps", "rml", "routed", "rtc", "schizo", "snapc", "sstore", "state"}, part)
}

// follow sets the options that parameters stand for, and notes the parameters
// that there is nothing for. Those of the environment go without a note: they
// were not given to gorun.
func (r *reader) follow(parameters []parameter, quiet bool) error {
	for _, p := range parameters {
		r.s.spelling = p.spelling
		stand := standsFor(p.name)
		if stand == nil {
			if !quiet {
				r.s.note("a parameter of Open MPI's own launcher, which gorun replaces")
			}
			continue
		}
		o, value := longOption(r.table, stand.option), p.value
		switch {
		case stand.value != nil:
			var set bool
			if value, set = stand.value(value); !set {
				continue
			}
		case o.arity == 0:
			if !isTrue(value) {
				continue
			}
			value = ""
		}
		if o.local {
			if r.given[o.names[0]] {
				continue
			}
			r.s.program = r.s.programs[0]
		}
		if err := r.set(o, p.spelling, value); err != nil {
			return err
		}
	}
	return nil
}
