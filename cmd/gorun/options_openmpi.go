package main

// openMPIOptions are options of Open MPI's mpirun, versions 4 and 5, that gorun
// has nothing for: those that change no result are noted, the others refused.
func openMPIOptions() []option {
	const (
		daemons   = "Open MPI's daemons are not at work here"
		install   = "no MPI need be installed where ranks run; PATH and LD_LIBRARY_PATH are passed on"
		attach    = "gorun starts no debugger; try gorun -np 2 xterm -e gdb ./program, or attach to the PIDs that gorun -vv tells"
		elsewhere = "jobs do not meet through a server of Open MPI's"
		restart   = "say which: --continuous has the job go on without ranks that have failed, --max-restarts N starts it again"
		copies    = "gorun copies no files to hosts; put them where the hosts find them, and say --wdir"
	)
	return []option{
		note0(daemons, "debug-daemons", "debug-daemons-file", "leave-session-attached", "novm", "do-not-resolve", "use-regexp",
			"enable-instant-on-support", "fwd-mpirun-port", "hetero-nodes", "uniform-nodes"),
		note1(daemons, "launch-agent", "max-vm-size", "spawn-timeout", "report-events"),
		note0(install, "noprefix", "no-app-prefix"),
		note1(install, "prefix", "app-pmix-prefix", "pmix-prefix"),
		note1("files of the job are made where they are needed; --mca orte_tmpdir_base moves those of Open MPI's library", "tmpdir"),
		note1("programs of every MPI are run alike", "personality"),
		note0("messages are whole lines, each told once", "no-aggregate-help", "parsable", "parseable", "p"),
		note0("gorun passes on its whole environment", "fwd-environment"),
		note0("that is how gorun works", "disable-recovery", "enable-auto-cleanup"),
		note1("what GPUs there are is for the program's MPI to find", "gpu-support"),
		only(own|openMPI, note0("every host that can be reached is on this machine, where the program is already", "preload-binary", "s")),
		refuse1(copies, "preload-files"),
		refuse0("gorun makes no directory for the ranks; --wdir names one", "set-cwd-to-session-dir"),
		refuse1(attach, "debugger", "xterm"),
		refuse0(attach, "tv", "output-proctable", "stop-on-exec", "stop-in-init", "stop-in-app"),
		only(own|openMPI, refuse0(attach, "debug")),
		refuse1(elsewhere, "ompi-server", "hnp", "report-uri", "dvm-uri"),
		refuse0("there is no virtual machine of daemons; gorun starts a job by itself", "dvm"),
		refuse0(restart, "enable-recovery"),
		refuse0("every rank's failure counts, those of spawned jobs too", "report-child-jobs-separately"),
		refuse1("the machine is read as the kernel shows it", "cartofile", "cf"),
		refuse0("all ranks of a program have the same arguments", "index-argv-by-rank"),
		refuse1("processes are in no named sets", "pset"),
		note1("the standard leaves its contents to each launcher, and gorun has none; -configfile reads programs", "file"),
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
