// Package doca holds the conventions of the DOCA applications, for the commands
// that replace them: the command line with its general flags, parameter files, log levels,
// the two logs, results as JSON, messages and exit statuses.
//
// A [Parser] is declared flag by flag, reads one command line, and starts the run:
//
//	p := doca.New("a2a", "An all-to-all over RDMA writes.", version.Line("a2a"))
//	p.Int(&size, doca.Flag{Long: "msgsize", Short: 'm', Value: "BYTES", Help: "...", Check: ...})
//	err := p.Parse(args)
//	if status := p.Report(err, std); err != nil {
//		return status
//	}
//	run := p.Start(std)
//	return run.End(ctx, work(ctx, run.Log))
//
// Parse neither prints nor exits: an [*Error] says which flag is wrong and why,
// [ErrHelp] and [ErrVersion] that the user asked for a text instead. [Parser.Report]
// prints what the DOCA applications print in each case and gives the exit
// status; a program of many ranks calls it in one of them.
//
// # Values
//
// Integers are parsed strictly: anything but a decimal number is an error. A
// flag's Check sees the value after its type was found good; checks run in the
// order in which the flags were declared, after all values are known, so that
// a check may look at flags declared before its own.
//
// # Parameter files
//
// -j/--json PATH reads flags from a JSON file with comments and trailing
// commas, of at most 256 KiB: an object of two sections, general and program flags, whose keys are
// long names. The sections are called doca_general_flags and
// doca_program_flags, or gorun_general_flags and gorun_program_flags. Unknown
// sections and keys, a key given twice and values of the wrong type are
// errors. A flag on the command line wins over the file, whose value for it
// must still have the right type.
//
// # Logs
//
// -l is the level of the program's own log, --sdk-log-level that of the runtime below it:
// devices, channels, connections, and the parser. The levels and the form of a line
// are those of package logline. The numbers 0 to 4 of old releases, which some guides still
// have, mean CRITICAL to DEBUG, and a line says so.
//
// A Parser holds no memory of the caller's but the pointers it was given, and
// may be used once. Only Parse reads a file; nothing else blocks.
package doca
