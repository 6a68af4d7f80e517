// Package launcher runs parallel jobs: N ranks of a program, on this machine or
// several, with everything that the command gorun does for them.
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
package launcher
