// Package stdio moves what ranks write and read.
//
// # Types
//
// [Lines] turns the bytes of one stream of one rank into whole lines, [Tail]
// keeps the last of them. [Sink] writes to one of the launcher's outputs, for
// all ranks. [Source] reads the launcher's input.
//
// # Memory
//
// The results of Add and End and the data that a Source sends belong to the
// receiver; the data that a Sink is given belongs to it until done is called. A stream holds at
// most [Limit] bytes of an unfinished line in memory; its reader keeps the rest, up
// to [LineMax]. Sinks and Sources hold as much as their callers let them: both work
// with credits, the bytes that the other side is still willing to take.
//
// # What may block
//
// Put does not block. A Sink's goroutine blocks in the writer, a Source's in
// the reader; each lives only while there is something to do, and Idle and Stop
// tell when it has ended. A writer that blocks for ever keeps its goroutine;
// so does a reader that is no file.
//
// # Files
//
// Read lines.go first, then crash.go, view.go, sink.go and source.go.
package stdio
