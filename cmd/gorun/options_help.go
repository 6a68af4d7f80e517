package main

// helpOptions are the options that ask for a text instead of a run.
func helpOptions() []option {
	return []option{
		{names: []string{"version"}, short: "V", family: "Help",
			help: "print the version and exit", set: setAction(showVersion)},
		{names: []string{"help"}, short: "h", family: "Help",
			help: "print this text and exit", set: setAction(showHelp)},
	}
}

// setAction notes what is asked for instead of a run; the first one stays.
func setAction(a action) func(*settings, string) error {
	return setSwitch(func(s *settings, on bool) {
		if on && s.action == runProgram {
			s.action = a
		}
	})
}
