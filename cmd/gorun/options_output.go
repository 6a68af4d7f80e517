package main

// outputOptions are the options that say what becomes of what the ranks write and read.
func outputOptions() []option {
	return []option{
		{names: []string{"tag-output"}, family: "Output",
			help: "put [1,RANK]<stdout>: before each line, stderr alike", set: setSwitch(func(s *settings, on bool) { s.job.TagOutput = on })},
		{names: []string{"verbose"}, short: "v", family: "Output",
			help: "say on standard error what happens, and which algorithms were chosen; -vv more", set: setVerbose},
	}
}

func setVerbose(s *settings, value string) error {
	if value != "" {
		return unfit(value, "no value; try -vv for more detail")
	}
	s.verbose++
	return nil
}
