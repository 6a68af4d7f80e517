package main

// outputOptions are the options that say what becomes of what the ranks write
// and read, and what gorun says itself.
func outputOptions() []option {
	return []option{
		{names: []string{"tag-output"}, family: "Output",
			help: "put [1,RANK]<stdout>: before each line, stderr alike", set: setSwitch(func(s *settings, on bool) { s.job.TagOutput = on })},
		{names: []string{"verbose"}, short: "v", family: "Output",
			help: "say on standard error what happens, and which algorithms were chosen; -vv more", set: setVerbose(1)},
		{names: []string{"debug-devel"}, short: "d", family: "Output",
			help: "as -vv", set: setVerbose(2)},
		{names: []string{"debug"}, under: hydra, family: "Output",
			help: "as -v", set: setVerbose(1)},
		{names: []string{"quiet"}, short: "q", family: "Output",
			help: "no notes and warnings about the command line, and of a failure its cause only", set: setSwitch(func(s *settings, on bool) { s.quiet = on })},
		{names: []string{"report-pid"}, arity: 1, family: "Output", value: "-|+|FILE",
			help: "write gorun's process number to standard output, standard error or FILE", set: setReportPID},
	}
}

func setVerbose(level int) func(*settings, string) error {
	return func(s *settings, value string) error {
		if value != "" {
			return unfit(value, "no value; try -vv for more detail")
		}
		s.verbose += level
		return nil
	}
}

func setReportPID(s *settings, value string) error {
	if value == "" {
		return unfit(value, "-, + or a file")
	}
	s.ends.pidFile = value
	return nil
}
