package main

// helpOptions are the options that ask for a text instead of a run.
func helpOptions() []option {
	return []option{
		{names: []string{"as"}, arity: 1, family: "Help", value: "LAUNCHER", words: []string{"gorun", "mpirun", "mpiexec"},
			help: "as the first option: do as under the name mpirun or mpiexec, for wrappers (GORUN_AS says the same)", set: setAs},
		{names: []string{"version"}, short: "V", more: []string{"info"}, family: "Help",
			help: "print the version and exit", set: setAction(showVersion)},
		{names: []string{"help"}, short: "h", family: "Help", value: "[TOPIC]", optional: true, words: topicNames(),
			help: "print help on a topic or an option and exit: gorun --help placement, gorun --help bind-to", set: setHelp},
		{names: []string{"man"}, family: "Help",
			help: "print the manual page and exit: gorun --man | man -l -", set: setAction(showManual)},
		{names: []string{"completion"}, arity: 1, family: "Help", value: "SHELL", words: []string{"bash", "zsh", "fish"},
			help: "print the completion script for bash, zsh or fish: source <(gorun --completion bash)", set: setCompletion},
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

func setCompletion(s *settings, value string) error {
	if value != "bash" && value != "zsh" && value != "fish" {
		return unfit(value, "bash, zsh or fish")
	}
	s.shell = value
	return setAction(showCompletion)(s, "")
}
