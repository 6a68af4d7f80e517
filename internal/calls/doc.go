// Package calls is the record of a rank's calls: a file that the rank maps and writes, and its host reads when the rank has ended, in
// whatever way. A rank that is killed has written all but its last call, and of that where it was.
//
//	file     header | texts of the call sites | sums by call site | sums by peer | ring of the last events
//
// A call costs two looks at the clock, a walk along the frame pointers to the line of the program that made it, and one entry of the ring. Sums are of
// all calls; the ring keeps the last Ring ones.
//
// A [Recorder] belongs to the goroutine that is inside a call. Readers trust nothing in the file.
package calls
