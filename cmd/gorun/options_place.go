package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
)

// placeSettings is what they say.
type placeSettings struct {
	mapBy     string
	modifiers []string // of the mapping, from options of their own
	display   []string // what to show, in this order
	report    bool     // show the bindings, on standard error
	over      bool     // oversubscription is meant
	dry       bool     // show all of a dry run

	byDepth       bool // of HPE's mpiexec: bind each rank to depth cores
	depth         int
	depthSpelling string
}

// placeOptions are the options that say where on the hosts each rank runs, and
// on which CPUs.
func placeOptions() []option {
	return []option{
		{names: []string{"map-by"}, fills: "Placing.Map Placing.RankFile", arity: 1, family: "Placement", value: "WORD",
			words: []string{"slot", "node", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "package", "seq", "rankfile", "ppr:", "pe-list="},
			help:  "assign ranks to hosts and their parts by slot, node, core, l3cache, numa, package, ppr:N:numa, slot:pe=2 ...", set: setMap},
		{names: []string{"rank-by"}, fills: "Placing.Rank", arity: 1, family: "Placement", value: "WORD",
			words: []string{"slot", "node", "fill", "span", "core", "numa", "package"},
			help:  "number the ranks by slot, node, fill, span, package ... (default: in the order of --map-by)", set: setText(func(s *settings) *string { return &s.job.Placing.Rank }, "")},
		{names: []string{"bind-to"}, fills: "Placing.Bind", arity: 1, family: "Placement", value: "WORD",
			words: []string{"none", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "package", "machine", "user:"},
			help:  "bind each rank to CPUs: none, hwthread, core, l3cache, numa, package, user:0+2,1 ...", set: setBind},
		{names: []string{"ppn"}, fills: "Placing.PerHost", more: []string{"perhost", "grr", "nproc-per-node", "nproc_per_node"}, arity: 1, family: "Placement", value: "N",
			help: "assign N ranks to each host in turn, however many slots it has", set: setPerHost},
		{names: []string{"npernode"}, fills: "Placing.Map", short: "N", arity: 1, family: "Placement", value: "N",
			help: "start N ranks on each host, and no more", set: setPPR("node")},
		{names: []string{"npersocket"}, fills: "Placing.Map", arity: 1, family: "Placement", value: "N",
			help: "start N ranks on each package, and no more", set: setPPR("package")},
		{names: []string{"ppr"}, fills: "Placing.Map", arity: 1, family: "Placement", value: "N:OBJECT",
			help: "start N ranks on each OBJECT, and no more: 2:numa", set: setPPRWord},
		{names: []string{"rankfile"}, fills: "Placing.RankFile", more: []string{"rf"}, arity: 1, family: "Placement", value: "FILE",
			help: "read where each rank runs from FILE, one rank per line: rank 0=node01 slot=1:0-2 (cores 0-2 of package 1), slot=4, slot=p7", set: setRankFile},
		{names: []string{"cpu-set"}, fills: "Placing.CPUs", more: []string{"cpu-list"}, arity: 1, family: "Placement", value: "LIST",
			help: "ranks use only these CPUs, bound or not: 0-3,8", set: setText(func(s *settings) *string { return &s.job.Placing.CPUs }, "")},
		{names: []string{"cpus-per-rank"}, fills: "Placing.Map", more: []string{"cpus-per-proc"}, arity: 1, family: "Placement", value: "N",
			help: "bind each rank to N cores; same as --map-by slot:pe=N", set: setPE},
		{names: []string{"use-hwthread-cpus"}, fills: "Placing.Map", family: "Placement",
			help: "count hardware threads instead of cores: for pe=N, in rankfiles, and for the default of -np without hosts", set: setModifier("hwtcpus")},
		{names: []string{"nolocal"}, fills: "Placing.Map", more: []string{"skip-launch-node"}, family: "Placement",
			help: "start no rank on this machine", set: setModifier("nolocal")},
		{names: []string{"oversubscribe"}, family: "Placement",
			help: "more ranks than slots are intended: print no note (gorun always allows them)",
			set:  setSwitch(func(s *settings, on bool) { s.place.over = on })},
		{names: []string{"nooversubscribe"}, family: "Placement",
			help: "fail if there are more ranks than slots, or than CPUs when no hosts are given",
			set:  setSwitch(func(s *settings, on bool) { s.job.Placing.NoOversubscribe = on })},
		{names: []string{"report-bindings"}, family: "Placement",
			help: "print on standard error which CPUs each rank is bound to",
			set:  setSwitch(func(s *settings, on bool) { s.place.report = on })},
		{names: []string{"display"}, arity: 1, family: "Placement", value: "WORD,...", words: []string{"map", "allocation", "bind", "topo"},
			help: "print, before ranks start: map (where each runs), allocation (hosts and slots), bind (CPUs), topo (the machine)", set: setDisplay},
		{names: []string{"do-not-launch"}, family: "Placement",
			help: "print where ranks would run, and start none",
			set:  setSwitch(func(s *settings, on bool) { s.job.Placing.DryRun = on })},
		{names: []string{"dry-run"}, family: "Placement",
			help: "same as --do-not-launch --display allocation,map,bind",
			set:  setSwitch(func(s *settings, on bool) { s.job.Placing.DryRun, s.place.dry = on, on })},
		{names: []string{"pernode"}, fills: "Placing.Map", family: "Placement",
			help: "start one rank on each host, and no more; same as --npernode 1", set: setWord(setPPR("node"), "1")},
		{names: []string{"rr"}, fills: "Placing.PerHost", under: hydra, family: "Placement",
			help: "assign one rank to each host in turn; same as -ppn 1", set: setWord(setPerHost, "1")},
		{names: []string{"bynode"}, fills: "Placing.Map", more: []string{"byslot", "bycore", "bysocket"}, family: "Placement",
			help: "same as --map-by node; likewise for slot, core and socket", set: setOld("by", setMap)},
		{names: []string{"bind-to-core"}, fills: "Placing.Bind", more: []string{"bind-to-socket", "bind-to-none"}, family: "Placement",
			help: "same as --bind-to core; likewise for socket and none", set: setOld("bind-to-", setBind)},
		{names: []string{"display-map"}, more: []string{"display-allocation", "display-topo", "display-devel-map", "display-devel-allocation",
			"display-diffable-map", "print-rank-map"}, family: "Placement",
			help: "same as --display map; likewise for allocation and topo", set: setOldDisplay},
		refuse1("the kernel places memory near the CPU that touches it first; bind the ranks with --bind-to, or write gorun ... numactl --membind=N ./program", "membind"),
		refuse1("use --map-by, --rank-by or --rankfile instead", "rankmap", "order-nodes"),
		refuse1("use --map-by and --bind-to instead", "binding"),
		note1("gorun reads the machine's topology from the kernel", "use-app-topology"),
	}
}

// setOld is a switch with what it stands for in its own name.
func setOld(prefix string, set func(*settings, string) error) func(*settings, string) error {
	return func(s *settings, value string) error {
		word := strings.TrimPrefix(strings.TrimLeft(s.spelling, "-"), prefix)
		return setWord(set, word)(s, value)
	}
}

func setOldDisplay(s *settings, value string) error {
	word := "map"
	switch {
	case strings.HasSuffix(s.spelling, "allocation"):
		word = "allocation"
	case strings.HasSuffix(s.spelling, "topo"):
		word = "topo"
	case strings.HasSuffix(s.spelling, "devel-map"):
		word = "map,bind"
	}
	return setWord(setDisplay, word)(s, value)
}

func setPPRWord(s *settings, value string) error { return setMap(s, "ppr:"+value) }

// setWord is a switch that stands for an option with a value.
func setWord(set func(*settings, string) error, word string) func(*settings, string) error {
	return func(s *settings, value string) error {
		on := true
		if value != "" {
			var err error
			if on, err = strconv.ParseBool(value); err != nil {
				return unfit(value, "no value, or =true or =false")
			}
		}
		if !on {
			return nil
		}
		return set(s, word)
	}
}

// The launcher knows the words; what is wrong with one it says before any rank
// starts.

func setMap(s *settings, value string) error {
	words := strings.Split(value, ":")
	for i, w := range words {
		name, file, ok := strings.Cut(w, "=")
		if ok && strings.EqualFold(name, "file") {
			if err := setRankFile(s, file); err != nil {
				return err
			}
			words = slices.Delete(words, i, i+1)
			break
		}
	}
	if words[0] == "" { // only modifiers: they go with what else is said
		s.place.modifiers = append(s.place.modifiers, words[1:]...)
		return nil
	}
	s.place.mapBy = strings.Join(words, ":")
	return nil
}

func setBind(s *settings, value string) error {
	s.job.Placing.Bind = value
	return nil
}

// setModifier is a switch that stands for a modifier of the mapping.
func setModifier(word string) func(*settings, string) error {
	return setWord(func(s *settings, word string) error {
		s.place.modifiers = append(s.place.modifiers, word)
		return nil
	}, word)
}

func atLeastOne(value, what string) (int, error) {
	n, err := strconv.ParseInt(value, 10, 20)
	if err != nil || n < 1 {
		return 0, unfit(value, what+", 1 or more")
	}
	return int(n), nil
}

func setPerHost(s *settings, value string) error {
	n, err := atLeastOne(value, "a number of ranks for each host")
	s.job.Placing.PerHost = n
	return err
}

// setPPR maps a number of ranks on each object.
func setPPR(object string) func(*settings, string) error {
	return func(s *settings, value string) error {
		n, err := atLeastOne(value, "a number of ranks for each "+object)
		s.place.mapBy = fmt.Sprintf("ppr:%d:%s", n, object)
		return err
	}
}

func setPE(s *settings, value string) error {
	n, err := atLeastOne(value, "a number of cores for each rank")
	s.place.modifiers = append(s.place.modifiers, fmt.Sprintf("pe=%d", n))
	return err
}

func setRankFile(s *settings, value string) error {
	text, err := s.read(value)
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return unfit(value, "a file with a line for each rank: rank N=HOST slot=SLOTS")
	}
	s.job.Placing.RankFile = text
	return nil
}

// The words of --display, of Open MPI 5 too.
var displayWords = map[string]string{
	"map": "map", "map-devel": "map", "allocation": "allocation", "alloc": "allocation",
	"bind": "bind", "bindings": "bind", "topo": "topo", "cpus": "topo",
}

func setDisplay(s *settings, value string) error {
	value, _, _ = strings.Cut(value, ":") // how to print: lines can be parsed as they are
	for word := range strings.SplitSeq(value, ",") {
		known, ok := displayWords[strings.ToLower(word)]
		if !ok {
			return unfit(word, "map, allocation, bind or topo; try --display map,bind")
		}
		if !slices.Contains(s.place.display, known) {
			s.place.display = append(s.place.display, known)
		}
	}
	return nil
}

// finishPlace says where ranks go, as the launcher wants to be told.
func (s *settings) finishPlace() {
	s.finishDepth()
	if s.place.over {
		s.place.modifiers = append(s.place.modifiers, "oversubscribe")
	}
	s.job.Placing.Map = strings.Join(append([]string{s.place.mapBy}, s.place.modifiers...), ":")
	if s.job.Placing.RankFile != "" && s.place.mapBy == "" && s.job.Placing.Map != "" {
		s.job.Placing.Map = "rankfile" + s.job.Placing.Map
	}
	switch {
	case s.place.dry:
		for _, word := range []string{"allocation", "map", "bind"} {
			if !slices.Contains(s.place.display, word) {
				s.place.display = append(s.place.display, word)
			}
		}
	case s.job.Placing.DryRun && s.place.display == nil:
		s.place.display = []string{"map"}
	}
	s.job.Placing.Topology = slices.Contains(s.place.display, "topo")
	if s.under == openMPI && s.job.Placing.Map == "" && s.job.Placing.Bind != "" && s.job.Placing.Bind != "none" && s.job.Placing.RankFile == "" && s.job.Placing.PerHost == 0 {
		s.job.Placing.Map = "openmpi"
	}
	switch {
	case s.under == openMPI && s.job.Placing.Bind == "":
		s.job.Placing.Bind = "openmpi"
	case s.under == hydra && s.job.Placing.Bind == "":
		s.job.Placing.Bind = "none" // -map-by alone binds nothing
	case s.under == hydra && s.job.Placing.Bind != "none" && !strings.HasPrefix(s.job.Placing.Bind, "user"):
		s.job.Placing.Bind += ":overload-allowed"
	}
	s.show = show{what: s.place.display, report: s.place.report}
}

// sequence tells whether each host of the list is to get a rank, one after the
// other.
func (s *settings) sequence() bool {
	return strings.EqualFold(strings.SplitN(s.place.mapBy, ":", 2)[0], "seq")
}

// counted tells whether the placement says how many ranks there are where -np
// does not.
func (s *settings) counted() bool {
	word := strings.ToLower(s.place.mapBy)
	return s.job.Placing.PerHost > 0 || s.job.Placing.RankFile != "" || s.sequence() || strings.HasPrefix(word, "ppr:")
}

// show is what is told of where the ranks go.
type show struct {
	what   []string
	report bool
}

// placed tells where the ranks go, before they start.
func (s show) placed(p launcher.Placement, quiet bool, out, errOut io.Writer) {
	for _, word := range s.what {
		text := ""
		switch word {
		case "map":
			text = p.Map()
		case "allocation":
			text = p.Allocation()
		case "bind":
			text = p.Bindings()
		case "topo":
			text = p.Topology()
		}
		fmt.Fprint(out, text)
	}
	if s.report {
		fmt.Fprint(errOut, p.Bindings())
	}
	if len(p.Oversubscribed) > 0 && !quiet {
		fmt.Fprintf(errOut, "gorun: note: more ranks than slots on %s: they yield while they wait; --oversubscribe says that it is meant\n",
			strings.Join(p.Oversubscribed, ", "))
	}
}
