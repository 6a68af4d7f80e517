package main

// srunOptions are long options of Slurm's srun that no mpirun or mpiexec has, and
// what is said here in place of them: whoever comes from there is told. "": nothing
// need be.
var srunOptions = map[string]string{
	"ntasks":           "-np",
	"ntasks-per-node":  "-ppn",
	"tasks-per-node":   "-ppn",
	"nodes":            "-H, or a hostfile, and -ppn",
	"nodelist":         "-H",
	"cpus-per-task":    "--map-by slot:pe=N",
	"distribution":     "--map-by and --rank-by",
	"overcommit":       "--oversubscribe",
	"exclusive":        "", // this launcher is no scheduler of jobs
	"overlap":          "",
	"label":            "-l",
	"unbuffered":       "", // lines are passed on at once
	"error":            "--output-filename, or --output dir=DIR",
	"input":            "--stdin",
	"chdir":            "--wdir",
	"export":           "-x, and all variables are passed on without",
	"multi-prog":       "programs separated by ':', or --app FILE",
	"kill-on-bad-exit": "", // a rank that fails ends the job, without --continuous
	"no-kill":          "--continuous",
	"wait":             "",
	"time":             "--timeout, in seconds",
}

// srunHint is what to say of an unknown option that is srun's; "" if it is not.
func srunHint(name string) string {
	instead, known := srunOptions[name]
	switch {
	case !known:
		return ""
	case instead == "":
		return "srun's; gorun needs none of the kind"
	}
	return "srun's; gorun has " + instead
}
