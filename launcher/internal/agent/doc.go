// Package agent runs the ranks of a host that is not the launcher's own: an
// agent process there, a [Link] to it here, and the stream of frames between
// them.
//
// # The stream
//
// On a host that may lack the agent's program a [Stage] comes first.
//
// The agent reads its standard input and writes its standard output. A frame is
// a length of four bytes, most significant first, and a message in msgpack:
//
//	controller                         agent
//	Probe, perhaps            ------->
//	                          <-------  Machine
//	Setup (spec, job key)     ------->
//	                          <-------  Address (of its gossip member)
//	Peers (addresses)         ------->          joins, once a rank has spoken or after a second
//	                          <-------  Want (program, offset), where its ranks run a host.Preload
//	Piece                     ------->          starts its ranks when it has all
//	Command ...               <------>  Event ..., the last one Done
//	end of stream             ------->          leaves
//
// The job key is on no command line and in no environment. An agent stays after
// its last event until the stream ends, because other hosts may still need what
// its ranks had put.
//
// # Relays
//
// To many hosts the remote shells are started by relays on some of them ([Relay], [MainRelay]), which gorun talks to by yamux, and the stream
// above is one of those. The relay's word is then the agent's first frame.
//
// # What dies when
//
// The end of the stream, whatever the reason, makes the agent kill its ranks at
// once. The end of the agent makes its guardian kill them, and is told to the
// controller as the loss of the host. The kernel kills the agent when the
// thread ends that started it.
//
// # What may block
//
// Send and Emit queue and return; what they queue is bounded by the credits of
// package host. A Link has two goroutines, which Close ends; an agent has one
// for each direction, one that joins, and the host's loop.
//
// # Files
//
// Read frame.go first, the messages, then link.go, the side of the controller, and main.go; then tries.go, relay.go and relaymain.go,
// where processes come from.
package agent
