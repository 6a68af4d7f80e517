package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// deviceOptions are the options that say which devices the ranks find.
func deviceOptions() []option {
	return []option{
		{names: []string{"emulate"}, fills: "Hosting.Emulate", arity: 1, family: "Devices", value: "NAME,...",
			help: "names of the software RDMA devices that ranks see, in Go or linked with libibverbs (default: soft0)", set: setEmulate},
	}
}

func setEmulate(s *settings, value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if !deviceName(name) {
			return unfit(value, "device names of letters, digits, '_', '-', '.' and ':', separated by commas; try --emulate mlx5_0,0000:03:00.0")
		}
		if slices.Contains(s.job.Hosting.Emulate, name) {
			return fmt.Errorf("found %q twice, expected different names", name)
		}
		s.job.Hosting.Emulate = append(s.job.Hosting.Emulate, name)
	}
	return nil
}

// noteEmulate tells of names of devices that a program would have had from its environment under
// another launcher. What an outer gorun has set for its ranks is not the user's.
func (s *settings) noteEmulate(environ []string) {
	const name = "GORUN_EMULATE"
	value := envvar.Get(environ, name)
	if value == "" || value == strings.Join(s.job.Hosting.Emulate, ",") {
		return
	}
	if outer := envvar.Get(s.environ, name); value == outer {
		if _, inside := envvar.Lookup(s.environ, "GORUN_JOB"); inside {
			return
		}
	}
	s.spelling = name + "=" + value
	s.note("the devices of gorun's ranks have the names that --emulate gives them; try --emulate " + value)
}

// deviceName tells whether a device can bear the name: it travels in a
// comma-separated variable and stands in messages.
func deviceName(name string) bool {
	return name != "" && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' || r == ':')
	}) < 0
}
