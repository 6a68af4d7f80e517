// Package orphan finds what ranks have left behind and nobody waits for: a
// daemon, which has made itself a session of its own and whose parent has ended.
// No process group leads to it any more.
//
// There are two ways. A process that does nothing but run a job adopts
// ([Adopt]): it becomes a subreaper, so that orphans become its children instead
// of init's, whatever they have done to their environment. While the job runs it
// waits for those that end, as init would; at the end it kills those that are
// left, and looks for nothing if it has no child, which costs one system call.
// A process with children of its own cannot do that; it sweeps ([Sweep]): it
// looks at every process for the job's marker in the environment.
//
// # Which children are orphans
//
// While the job runs only the dead are waited for, and among them never one that
// leads a group in this process's session, or that [Adopter.Lead] has started: so are ranks,
// agents and helpers, each of which has a process that waits for it. At the end, when those
// have been waited for, every child is an orphan but for those that were there
// before.
//
// # Blocking
//
// End and Sweep take milliseconds, and two seconds when the kernel does not let
// processes go that were killed. End waits ten seconds for the guardian of an agent that
// has died: killed before its work is done, it leaves the files of the agent's ranks.
//
// # Files
//
// Read adopt.go first, then sweep.go.
package orphan
