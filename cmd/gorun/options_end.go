package main

import "time"

// endOptions are the options that say when and how a job ends.
func endOptions() []option {
	return []option{
		{names: []string{"timeout"}, arity: 1, family: "End", value: "TIME",
			help: "end a job that takes longer, with status 124: 90 (seconds), 1m30s", set: setTimeout},
		{names: []string{"print-all-exitcodes"}, family: "End",
			help: "say at the end how every rank ended", set: setSwitch(func(s *settings, on bool) { s.ends.everyStatus = on })},
	}
}

func setTimeout(s *settings, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		// A bare number counts seconds.
		d, err = time.ParseDuration(value + "s")
	}
	if err != nil || d <= 0 {
		return unfit(value, "a time above 0 in seconds or with units; try --timeout 90 or --timeout 1m30s")
	}
	s.job.Timeout = d
	return nil
}
