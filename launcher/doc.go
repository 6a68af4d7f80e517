// Package launcher runs parallel jobs: N ranks of a program, on this machine or
// several, with everything that the command gorun does.
//
//	result, err := launcher.Run(ctx, launcher.Job{Argv: []string{"./program"}, NP: 4, Stdout: os.Stdout, Stderr: os.Stderr})
//
// A [Job] is data; the zero value of every field but Argv and NP is a usable
// default. [Run] runs one to its end. [Start] returns at once with a [Handle],
// which tells how the ranks are, takes signals and waits. Job.Lines is called
// with what the ranks write, line by line. The [Result] has how every rank
// ended and the first [Cause], where there was a failure.
//
// # Errors
//
// A job that cannot be started is a [*JobError]: it names the field of the Job.
// A job whose ranks fail is no error but a Result with a Cause. Any other error
// is of the launcher or its machine.
//
// # What runs
//
// Run calls nothing of the Job after it has returned, and has the callbacks
// Placed, Lines, Warn and others called while it runs, on goroutines of its own.
// None may wait for the job's end: the job would wait for it. All ranks, and
// what they started, have ended when Run returns; when this process is killed, in
// whatever way, a guardian ends them.
//
// # Files
//
// Read job.go first, then run.go, which has the order of a job. The rest in this order:
//
//	check.go, placer.go, machines.go    the Job becomes a placement, which placement.go shows
//	controller.go                       takes the news of hosts, and hands them to the parts below
//	group.go, spec.go                   groups of ranks, and what a host is told of its part
//	agents.go, heartbeat.go             the agents of a group
//	cause.go, survey.go                 why and how a job ends, and what its ranks do meanwhile
//	joins.go, mpimix.go                 ranks that wait in vain for others
//	outlet.go, longlines.go, input.go   what ranks write and read, lines.go line by line
//	requests.go, spawns.go              what ranks ask for: spawnplan.go, spawninfo.go say what runs where
//	handle.go, stats.go, watch.go       what the caller sees; result.go at the end, restart.go before another start
package launcher
