package prelude

// enter is where the process begins: it goes on to the runtime, or says what is
// missing and exits with status 125.
func enter() //nolint:unused // the linker's option -E names it
