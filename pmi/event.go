package pmi

import "fmt"

// An Event is an action for the owner of an [Engine]: one of the types below.
type Event interface{ event() }

type (
	// Reply has bytes for a rank's socket. Write the replies to a rank in
	// the order of their events, unchanged: replies may share bytes.
	Reply struct {
		Rank int
		Data []byte
	}

	// Fence reports that all ranks of this host are in a fence, and asks for the
	// contributions of all hosts: call [Store].Fence, then [Engine.FenceDone] or
	// [Engine.FenceFailed], and serve the engine meanwhile.
	Fence struct {
		Epoch        uint64
		Contribution []byte
		// Closing: this is the host's last fence, in which no rank waits. It tells the other
		// hosts that no further fence will come. It may stay unanswered when the job ends.
		Closing bool
	}

	// Abort is the request of a rank to end the job with this exit code.
	Abort struct {
		Rank, Code int
		Message    string // the rank's message; usually empty
	}

	// Spawn asks for new processes: a group with its own key-value space, which contains
	// Preset from the start. Answer it with [Engine.SpawnDone]; until then the rank waits.
	Spawn struct {
		Rank   int
		Apps   []SpawnApp
		Preset map[string]string
	}

	// Name asks for an operation on the job's [Names]. Answer it with
	// [Engine.NameDone]; until then the rank waits.
	Name struct {
		Rank  int
		Query NameQuery
	}

	// Finalized reports that a rank has finished with PMI: it may now exit.
	Finalized struct{ Rank int }

	// Violation reports that a rank broke the protocol or left while others wait for it, so
	// that the job cannot continue. Err is a *RankError. With kind ErrLeft the rank's
	// process has probably ended, and its exit says more. With kind ErrFence the rank did
	// nothing wrong: it is the first rank of this host, and stands for all ranks that wait.
	Violation struct {
		Rank int
		Err  error
	}
)

func (Reply) event()     {}
func (Fence) event()     {}
func (Abort) event()     {}
func (Spawn) event()     {}
func (Name) event()      {}
func (Finalized) event() {}
func (Violation) event() {}

// A RankError reports a rank's violation of the protocol.
type RankError struct {
	Rank   int
	Kind   error  // ErrLeft, ErrOrder, ErrCommand, ErrLimit, ErrFence, ErrSecure, ErrSyntax, ErrLine
	Detail string // what was found, and what was expected
	Cause  error  // for ErrFence the store's error; else nil
}

func (e *RankError) Error() string {
	return fmt.Sprintf("rank %d: pmi: %v: %s", e.Rank, e.Kind, e.Detail)
}

// Unwrap returns the kind and the cause.
func (e *RankError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}
