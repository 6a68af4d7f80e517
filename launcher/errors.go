package launcher

import "fmt"

// JobError is a Job that could not be started: a field of it asks for what is
// not there or makes no sense. No rank has run when Run returns one.
type JobError struct {
	// Field is the field of Job, as "NP" or "Argv".
	Field string
	// Value is what was found in it.
	Value string
	// ExitStatus is what a launcher command should exit with: 127 for a program
	// not found, 126 for one that cannot be run, 1 for all else.
	ExitStatus int
	// Err says what is wrong and what was expected.
	Err error
}

func (e *JobError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Field, e.Value, e.Err)
}

// Unwrap is Err.
func (e *JobError) Unwrap() error { return e.Err }
