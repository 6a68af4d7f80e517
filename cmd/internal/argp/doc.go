// Package argp gives the applications the command line of the DOCA
// applications: the same general flags, log levels, JSON parameter files,
// messages and exit status.
//
// A [Parser] is declared flag by flag, then reads one command line:
//
//	p := argp.New("a2a", "An all-to-all over RDMA writes.", version.Line("a2a"))
//	p.Int(&size, argp.Flag{Long: "msgsize", Short: 'm', Value: "BYTES", Help: "...", Check: ...})
//	general, err := p.Parse(os.Args[1:])
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
// commas: an object of two sections, general and program flags, whose keys are
// long names. The sections are called doca_general_flags and
// doca_program_flags, or gorun_general_flags and gorun_program_flags. Unknown
// sections and keys, a key given twice and values of the wrong type are
// errors. A flag on the command line wins over the file, whose value for it
// must still have the right type.
//
// A Parser holds no memory of the caller's but the pointers it was given, and
// may be used once. Only Parse reads a file; nothing else blocks.
package argp
