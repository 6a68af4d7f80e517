package pmi

import "fmt"

// An Event is what the owner of an [Engine] has to do: one of the types below.
type Event interface{ event() }

type (
	// Reply are bytes for a rank's socket. Replies to one rank are written in
	// the order of their events. The bytes may be shared between replies.
	Reply struct {
		Rank int
		Data []byte
	}

	// Fence says that all ranks of this host are in, and asks for the union of
	// all hosts' contributions: Store.Fence, then Engine.FenceDone or
	// Engine.FenceFailed, while the engine goes on serving.
	Fence struct {
		Epoch        uint64
		Contribution []byte
		// Closing is set on a host's last fence, in which no rank waits: it
		// tells the other hosts that there will be no further one. It may stay
		// unanswered when the job ends.
		Closing bool
	}

	// Abort is a rank's wish that the job end with this exit code.
	Abort struct {
		Rank, Code int
		Message    string // what the rank said about it; usually empty
	}

	// Spawn asks for new processes, a group of their own with a key-value space
	// that holds Preset from the start. Engine.SpawnDone answers; until then
	// the rank waits.
	Spawn struct {
		Rank   int
		Apps   []SpawnApp
		Preset map[string]string
	}

	// Name asks the job's [Names]. Engine.NameDone answers; until then the rank
	// waits.
	Name struct {
		Rank  int
		Query NameQuery
	}

	// Finalized says that a rank is through with PMI: its exit is regular.
	Finalized struct{ Rank int }

	// Violation says that a rank broke the protocol, or left others waiting,
	// and the job cannot go on. Err is a *RankError. For Err of kind ErrLeft
	// the rank's process has probably ended: how it did says more. ErrFence is
	// not this rank's fault: the first rank served here stands for all that wait.
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

// A RankError is what a rank did wrong.
type RankError struct {
	Rank   int
	Kind   error  // ErrLeft, ErrOrder, ErrCommand, ErrLimit, ErrFence, ErrSyntax, ErrLine
	Detail string // what was found, and what was expected
	Cause  error  // the store's error behind ErrFence; else nil
}

func (e *RankError) Error() string {
	return fmt.Sprintf("rank %d: pmi: %v: %s", e.Rank, e.Kind, e.Detail)
}

// Unwrap reaches the kind and the cause, for errors.Is and errors.As.
func (e *RankError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}
