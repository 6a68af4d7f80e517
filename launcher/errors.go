package launcher

import "fmt"

// JobError reports that a job could not be started, because a field of it is invalid
// or names something that does not exist. No rank has run when Run returns one.
type JobError struct {
	// Field is the name of the field of Job, such as "NP" or "Placing.Map".
	Field string
	// Value is the value of the field.
	Value string
	// ExitStatus is the exit status for a launcher command: 127 for a program
	// that was not found, 126 for one that cannot be executed, else 1.
	ExitStatus int
	// Err says what is wrong and what was expected.
	Err error
}

func (e *JobError) Error() string { return fmt.Sprintf("%s %s: %v", e.Field, e.Value, e.Err) }

// Unwrap is Err.
func (e *JobError) Unwrap() error { return e.Err }
