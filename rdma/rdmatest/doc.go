// Package rdmatest is the conformance suite that every provider of package
// rdma passes: [Run] holds the contexts of a [Fabric] to the rules of verbs.
//
// A Fabric makes nodes. A [Node] is an opened context with a way to make and to
// look at memory beside it: in this process ([Local]) or in another one
// ([Proc], which drives an [Agent] over a pipe), so the same cases run against
// peers of either kind. Every case opens nodes of its own and closes all that
// it made; what is left over (descriptors, goroutines, processes, objects that
// cannot be closed) fails it.
//
// A case is named for the rule it checks, and it is written to fail: wherever a
// rule says that something does not happen (no completion, no byte changed), the
// case first makes something later happen on the same queue pair, so that no
// case waits for time to pass. The only times checked are lower bounds of the
// timers that verbs define, and [Fabric.Patience], after which a completion that
// is due counts as lost.
//
// # Files
//
// Read fabric.go first, then rig.go, which has what a case works with. Most other files
// are a group of cases, named for its subject. node.go and proc.go are the two kinds of
// node; wire.go is the protocol between a Proc (proxy.go) and its agent (agent.go).
// kill.go, flood.go and tagkill.go stay in this package: they use fifty names of the rig,
// and the agent runs their other half, so that a package of theirs would close a circle.
//
// # Ownership
//
// Nodes belong to the Fabric, which closes them through the test's clean-ups.
// Objects belong to the rig of a case and are closed, in reverse order and
// without an error, when the case ends. Memory of a [Region] lives as long as
// its node.
//
// # Blocking
//
// A case blocks until a completion comes or Patience is over. A call to a Proc
// blocks until its agent answers or has died.
package rdmatest
