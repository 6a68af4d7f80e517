// Package e2e runs gorun and the applications as users do: as processes, from
// scripts (testdata/scripts, in the language of testscript), and looks at what
// they print, how they exit and what they leave behind.
//
// TestMain builds the commands once into a directory of its own, which comes
// first in the scripts' PATH. Every script runs with a marker in its
// environment, which all its processes inherit; when it ends nothing that bears
// the marker may live, and nothing may be left in its TMPDIR.
//
// Beyond testscript's own, scripts have these commands:
//
//	exits STATUS program args...           run to the end, within a minute, and compare the exit status
//	start NAME program args...             run in the background; output goes to NAME.out and NAME.err
//	signal SIGNAL NAME                     send a signal to a program of start
//	ends NAME STATUS                       wait for a program of start and compare its exit status
//	await FILE...                          wait until the files exist
//	says NAME TEXT                         wait until a program of start has written the text to standard error
//	gone                                   nothing of this script lives, within a second
//	matrices RANKS COLUMNS BLOCK FILE      a2a's matrices: the right form, and receive is send with its blocks transposed
//	results FILE RANKS                     a2a's JSON: the numbers make sense, a call is a write for each ordered pair of ranks
//	rows FILE COUNT field=value...         gorun-bench's results: so many rows with these values, whole, verified and timed
//
// A line "# Row: " names one of the ways in which jobs end that launchers differ
// in; the next line is what shows it for gorun.
package e2e
