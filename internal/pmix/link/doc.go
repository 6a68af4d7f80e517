// Package link is what a host and its gorun-pmix say to each other, and what the
// helpers of several hosts say to each other through the controller of the job.
//
// # The stream
//
// A frame is a length of four bytes, most significant first, and a [Message] in
// msgpack. The helper finds the host's end of a stream socket as descriptor
// [ControlFD], the socket that ranks connect to as [ListenFD], and the first of their
// connections, which has been accepted, as [FirstFD]:
//
//	host                                helper
//	Setup                     ------->          makes the server, registers the ranks
//	                          <-------  Ready | Failed
//	                          <-------  Joined, Left, Abort, Log   (what ranks do)
//	                          <-------  Ask    ---> the job's hub (package hub)
//	Answer, Request, Event    ------->          what the hub has for it
//	Setup                     ------->          registers another group's ranks
//	                          <-------  Ready
//	Drop                      ------->          forgets a group
//	Ping                      ------->
//	                          <-------  Pong
//	end of stream             ------->          exits
//
// Joined, Left, Abort and Log are written before libpmix lets the process go on, so a
// host that has seen the end of a process finds them in its socket.
//
// # Memory
//
// A frame is at most [FrameMax] bytes, and a [Decoder] grows as bytes arrive, not
// as a header promises.
package link
