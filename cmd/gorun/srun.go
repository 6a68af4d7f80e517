package main

import "strings"

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

// torchrunOptions are those of torchrun, in the same way; it writes '_' for '-' too.
var torchrunOptions = map[string]string{
	"node-rank":     "", // one gorun starts the ranks of all hosts
	"rdzv-backend":  "",
	"rdzv-endpoint": "",
	"rdzv-id":       "",
	"rdzv-conf":     "",
	"standalone":    "",
	"master-addr":   "", // ranks get MASTER_ADDR and MASTER_PORT
	"master-port":   "",
	"local-addr":    "--interface",
	"redirects":     "--output dir=DIR:nocopy",
	"tee":           "--output dir=DIR",
	"log-dir":       "--output dir=DIR",
	"role":          "",
	"module":        "python3 -m NAME as the program",
	"no-python":     "",
	"run-path":      "",
	"start-method":  "",
}

// foreignHint is what to say of an unknown option that is another launcher's; "" if it is none's.
func foreignHint(name string) string {
	whose := "srun"
	instead, known := srunOptions[name]
	if !known {
		whose = "torchrun"
		instead, known = torchrunOptions[strings.ReplaceAll(name, "_", "-")]
	}
	switch {
	case !known:
		return ""
	case instead == "":
		return whose + "'s; gorun needs none of the kind"
	}
	return whose + "'s; gorun has " + instead
}
