package main

// openMPIOptions are options of Open MPI's mpirun, versions 4 and 5, that gorun
// has nothing for: those that change no result are noted, the others refused.
func openMPIOptions() []option {
	const (
		daemons   = "gorun does not use Open MPI's daemons"
		install   = "gorun needs no installation of MPI; it passes on PATH and LD_LIBRARY_PATH"
		attach    = "gorun starts no debugger; try gorun -np 2 xterm -e gdb ./program, or attach to the PIDs that gorun -vv prints"
		elsewhere = "gorun has no server through which jobs connect"
		copies    = "gorun copies no files but the program (--preload-binary) to hosts; copy them yourself and set --wdir"
	)
	return []option{
		note0(daemons, "debug-daemons", "debug-daemons-file", "leave-session-attached", "novm", "do-not-resolve", "use-regexp",
			"enable-instant-on-support", "fwd-mpirun-port", "hetero-nodes", "uniform-nodes", "daemonize", "set-sid"),
		note1(daemons, "max-vm-size", "spawn-timeout", "report-events"),
		note0(install, "noprefix", "no-app-prefix"),
		note1(install, "prefix", "app-pmix-prefix", "pmix-prefix"),
		note1("gorun chooses the directory of the job's files; --mca orte_tmpdir_base moves those of Open MPI's library", "tmpdir"),
		note1("gorun runs programs of every MPI in the same way", "personality"),
		note0("gorun prints each message once, in whole lines", "no-aggregate-help", "parsable", "parseable", "p"),
		note0("gorun passes on its whole environment", "fwd-environment"),
		note0("gorun always does this", "disable-recovery", "enable-auto-cleanup"),
		note1("the program's MPI finds the GPUs", "gpu-support"),
		refuse1(copies, "preload-files"),
		refuse0("gorun makes no session directory; use --wdir DIR", "set-cwd-to-session-dir"),
		refuse1(attach, "debugger", "xterm"),
		refuse0(attach, "tv", "output-proctable", "stop-on-exec", "stop-in-init", "stop-in-app"),
		only(own|openMPI, refuse0(attach, "debug")),
		refuse1(elsewhere, "ompi-server", "hnp", "report-uri", "dvm-uri", "singleton"),
		refuse1("gorun watches no pipe of another program; end gorun by a signal, or give it a --timeout", "keepalive"),
		refuse0("gorun has no persistent daemons; each gorun starts its own job", "dvm"),
		refuse0("gorun counts the failure of every rank, also of spawned jobs", "report-child-jobs-separately"),
		refuse1("gorun reads the machine's topology from the kernel", "cartofile", "cf"),
		refuse0("all ranks of a program get the same arguments", "index-argv-by-rank"),
		refuse1("gorun has no named process sets", "pset"),
		note1("the MPI standard leaves the format to the launcher, and gorun has none; use -configfile for programs", "file"),
	}
}

// note0 and note1 are options that do nothing, of no and of one value.
func note0(reason string, names ...string) option {
	return option{names: names[:1], more: names[1:], fate: noted, reason: reason}
}

func note1(reason string, names ...string) option {
	o := note0(reason, names...)
	o.arity, o.value = 1, "VALUE"
	return o
}

// refuse0 and refuse1 are options that are refused, of no and of one value.
func refuse0(reason string, names ...string) option {
	o := note0(reason, names...)
	o.fate = refused
	return o
}

func refuse1(reason string, names ...string) option {
	o := note1(reason, names...)
	o.fate = refused
	return o
}

// only makes an option one of some kinds of launcher.
func only(under family, o option) option {
	o.under = under
	return o
}
