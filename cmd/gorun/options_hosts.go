package main

// hostOptions are the options that say where the hosts are and how to reach them.
func hostOptions() []option {
	return []option{
		{names: []string{"host", "hosts"}, short: "H", arity: 1, family: "Hosts", value: "NAME[:SLOTS],...",
			help: "hosts to run on and how many ranks each takes (default: 1)", set: setHosts},
		{names: []string{"launcher"}, arity: 1, family: "Hosts", value: "fork",
			help: "how to reach the hosts; fork: an agent process for each, on this machine", set: setLauncher},
	}
}

func setHosts(s *settings, value string) error {
	hosts, err := parseHosts(value)
	if err != nil {
		return err
	}
	s.job.Hosts = append(s.job.Hosts, hosts...)
	return nil
}

func setLauncher(s *settings, value string) error {
	if value != "fork" {
		return unfit(value, "fork, the only way there is yet to reach hosts; try --launcher fork -H a:2,b:2")
	}
	s.job.Launcher = value
	return nil
}
