package main

import (
	"fmt"
	"strings"
)

// palsOptions are options of the mpiexec of HPE's PALS, the launcher of Cray EX
// machines, that no other mpiexec has.
func palsOptions() []option {
	return []option{
		{names: []string{"cpu-bind"}, fills: "Placing.Bind", arity: 1, family: "Placement", value: "WORD",
			words: []string{"none", "thread", "core", "socket", "numa", "depth", "list:"},
			help:  "bind each rank to CPUs, in HPE's words: none, thread, core, socket, numa, depth, list:0-1:2-3", set: setCPUBind},
		{names: []string{"depth"}, fills: "Placing.Map", arity: 1, family: "Placement", value: "N",
			help: "number of cores for each rank, for --cpu-bind depth", set: setDepth},
		note0("gorun reserves no network resources", "no-vni"),
	}
}

// The words of --cpu-bind for objects; the plurals are Slurm's.
var cpuBindWords = map[string]string{
	"none": "none", "no": "none",
	"thread": "hwthread", "threads": "hwthread",
	"core": "core", "cores": "core",
	"socket": "package", "sockets": "package",
	"numa": "numa", "ldom": "numa", "ldoms": "numa",
}

func setCPUBind(s *settings, value string) error {
	word := value
	for _, flag := range []string{"verbose", "v", "quiet", "q"} {
		if rest, ok := strings.CutPrefix(word, flag+","); ok {
			word, s.place.report = rest, flag[0] == 'v'
		}
	}
	kind, list, _ := strings.Cut(word, ":")
	switch {
	case cpuBindWords[word] != "":
		s.job.Placing.Bind = cpuBindWords[word]
	case word == "depth":
		s.place.byDepth, s.job.Placing.Bind = true, "core"
	case kind == "list" && list != "":
		// "," joins the CPUs of a rank and ":" parts ranks, the other way round than
		// in --bind-to user.
		s.job.Placing.Bind = "user:" + strings.NewReplacer(",", "+", ":", ",").Replace(list)
	case kind == "mask", kind == "map_cpu", kind == "mask_cpu", word == "rank":
		s.note(fmt.Sprintf("gorun does not support %q; use --bind-to, or --cpu-bind list:0-1:2-3", word))
	default:
		return unfit(value, "none, thread, core, socket, numa, depth or list:CPUS:CPUS")
	}
	return nil
}

func setDepth(s *settings, value string) error {
	n, err := atLeastOne(value, "a number of cores for each rank")
	s.place.depth, s.place.depthSpelling = n, s.spelling
	return err
}

// finishDepth binds ranks to as many cores as --depth says, where --cpu-bind asks
// for it. By itself --depth says how many threads a rank has, and binds nothing.
func (s *settings) finishDepth() {
	switch {
	case s.place.byDepth:
		s.place.modifiers = append(s.place.modifiers, fmt.Sprintf("pe=%d", max(1, s.place.depth)))
	case s.place.depth > 0:
		s.spelling = s.place.depthSpelling
		s.note("--depth counts only together with --cpu-bind depth")
	}
}
