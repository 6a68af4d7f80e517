package host

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// What ranks are told of their progress threads: whether they have one, and its CPU.
const (
	asyncVar    = "GORUN_ASYNC_PROGRESS"
	asyncCPUVar = "GORUN_ASYNC_CPU"
)

// A spare is the CPUs of the host's progress threads: each on a core that no rank of the
// host has, and that no thread of another program has. It is empty where ranks are not bound,
// as they may run everywhere then.
type spare struct {
	cpus  []int // by local rank, -1: none; nil where there are none at all
	holds []topo.Hold
	taken int // cores that other programs hold
}

// spareCPUs picks them for as many ranks as it can. machine is called if there is a need.
func spareCPUs(spec *Spec, machine func() topo.Machine) *spare {
	s := &spare{}
	if spec.Hosting.AsyncProgress == "off" || spec.NP == 1 { // the only rank has no thread
		return s
	}
	var used topo.Set
	for _, r := range spec.Ranks {
		if len(r.CPUs) == 0 {
			return s
		}
		for _, c := range r.CPUs {
			used.Add(c)
		}
	}
	s.cpus = slices.Repeat([]int{-1}, len(spec.Ranks))
	next, m := 0, machine()
	for _, core := range m.Objects(topo.Core) {
		if next == len(s.cpus) {
			break
		}
		usable := core.CPUs.And(m.Allowed)
		if usable.Len() > 0 && core.CPUs.And(used).Len() == 0 && s.take(usable.First()) {
			s.cpus[next] = usable.First()
			next++
		}
	}
	return s
}

// take takes a core for the job; false if a thread of another program has it.
func (s *spare) take(cpu int) bool {
	hold, taken := topo.TakeCPU(cpu)
	if !taken {
		s.taken++
		return false
	}
	s.holds = append(s.holds, hold)
	return true
}

// tell says which CPUs they are.
func (s *spare) tell(log func(format string, args ...any)) {
	if s.cpus == nil {
		return
	}
	text := ""
	if s.taken > 0 {
		text = fmt.Sprintf("; other programs have %d cores", s.taken)
	}
	log("CPUs of the progress threads, by local rank (-1: no core is spare): %v%s", s.cpus, text)
}

// release gives the cores back.
func (s *spare) release() {
	for _, h := range s.holds {
		h.Release()
	}
	s.holds = nil
}
