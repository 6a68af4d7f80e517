package topo_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/topo/topotest"
)

// What is counted of the recorded machines, by hand.
func TestRecordedMachines(t *testing.T) {
	for name, want := range map[string]struct {
		objects [topo.Kinds]int // threads, cores, L1, L2, L3, NUMA, packages, whole
		allowed string
		usable  int
		limited bool
		small   int
	}{
		"laptop":    {[topo.Kinds]int{16, 12, 12, 6, 1, 1, 1, 1}, "0-15", 16, false, 8},
		"xeon":      {[topo.Kinds]int{80, 40, 40, 40, 2, 2, 2, 1}, "0-79", 80, false, 0},
		"batch":     {[topo.Kinds]int{80, 40, 40, 40, 2, 2, 2, 1}, "4,6,8,10,44,46,48,50", 8, true, 0},
		"epyc":      {[topo.Kinds]int{256, 128, 128, 128, 16, 8, 2, 1}, "0-255", 256, false, 0},
		"arm":       {[topo.Kinds]int{80, 80, 80, 80, 0, 4, 1, 1}, "0-79", 80, false, 0},
		"container": {[topo.Kinds]int{32, 16, 16, 16, 1, 1, 1, 1}, "0-31", 1, true, 0},
		"sandbox":   {[topo.Kinds]int{4, 4, 0, 0, 0, 0, 1, 1}, "0-3", 4, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := topotest.Machine(t, name)
			small := 0
			for _, c := range m.CPUs {
				if c.Small {
					small++
				}
			}
			var got [topo.Kinds]int
			for k := range topo.Kinds {
				objects := m.Objects(k)
				got[k] = len(objects)
				sum := 0
				for i, o := range objects {
					sum += o.CPUs.Len()
					if o.CPUs.Len() == 0 || o.Index != i || o.Kind != k {
						t.Errorf("%v %d: %+v", k, i, o)
					}
				}
				if len(objects) > 0 && sum != len(m.CPUs) {
					t.Errorf("the objects of kind %v hold %d CPUs of %d", k, sum, len(m.CPUs))
				}
			}
			if got != want.objects || m.Allowed.String() != want.allowed || m.Usable() != want.usable || m.Restricted() != want.limited || small != want.small {
				t.Errorf("got %v, allowed %s, usable %d, restricted %v, %d small; want %+v", got, m.Allowed, m.Usable(), m.Restricted(), small, want)
			}
		})
	}
	if names := topotest.Names(t); len(names) != 7 {
		t.Errorf("got %v: want each recorded topology in the table", names)
	}
}

// Objects are numbered as hwloc numbers them.
func TestLogicalOrder(t *testing.T) {
	for _, c := range []struct {
		machine string
		kind    topo.Kind
		index   int
		want    string
	}{
		{"xeon", topo.Core, 0, "0,40"},
		{"xeon", topo.Core, 1, "2,42"},
		{"xeon", topo.Core, 20, "1,41"},
		{"xeon", topo.Thread, 1, "40"},
		{"xeon", topo.L3, 1, topo.SetOf(odd(80)...).String()},
		{"epyc", topo.Core, 127, "127,255"},
		{"epyc", topo.L3, 3, "24-31,152-159"},
		{"epyc", topo.NUMA, 4, "64-79,192-207"},
		{"laptop", topo.Core, 4, "8"},
		{"laptop", topo.L2, 4, "8-11"},
		{"arm", topo.NUMA, 3, "60-79"},
		{"container", topo.Core, 15, "30-31"},
		{"sandbox", topo.Package, 0, "0-3"},
	} {
		m := topotest.Machine(t, c.machine)
		if got := m.Objects(c.kind)[c.index].CPUs.String(); got != c.want {
			t.Errorf("%s: %v %d: got CPUs %s, want %s", c.machine, c.kind, c.index, got, c.want)
		}
	}
}

func odd(n int) []int {
	var list []int
	for i := 1; i < n; i += 2 {
		list = append(list, i)
	}
	return list
}

func TestThisMachine(t *testing.T) {
	m := topo.Here()
	if n := m.Allowed.Len(); n < 1 || n > len(m.CPUs) || m.Usable() != topo.CPUs() {
		t.Errorf("got %d CPUs, %s allowed, %d usable; CPUs gives %d", len(m.CPUs), m.Allowed, m.Usable(), topo.CPUs())
	}
}

// Files that contradict themselves or say nothing make no machine fail.
func TestOddFiles(t *testing.T) {
	const dir = "sys/devices/system/cpu/"
	for _, c := range []struct {
		name  string
		files map[string]string
		cpus  int
		cores int
		small int
	}{
		{"nothing at all", nil, 1, 1, 0},
		{"nonsense everywhere", map[string]string{dir + "online": "zero", dir + "cpu0/topology/core_cpus_list": "9-", "proc/self/status": "Cpus_allowed_list: x\n"}, 1, 1, 0},
		{"affinity elsewhere", map[string]string{dir + "online": "0-1", "proc/self/status": "Cpus_allowed_list:\t7\n"}, 2, 2, 0},
		{"cores that overlap", map[string]string{dir + "online": "0-2", dir + "cpu0/topology/core_cpus_list": "0-1", dir + "cpu2/topology/core_cpus_list": "1-2"}, 3, 2, 0},
		{"a core without its own CPU", map[string]string{dir + "online": "0-1", dir + "cpu0/topology/core_cpus_list": "1"}, 2, 2, 0},
		{"offline siblings", map[string]string{dir + "online": "0,2", dir + "cpu0/topology/core_cpus_list": "0-1"}, 2, 2, 0},
		{"two capacities", map[string]string{dir + "online": "0-3", dir + "cpu0/cpu_capacity": "400", dir + "cpu1/cpu_capacity": "400", dir + "cpu2/cpu_capacity": "1024", dir + "cpu3/cpu_capacity": "1024"}, 4, 4, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range c.files {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			m := topo.Read(files)
			small := 0
			for _, cpu := range m.CPUs {
				if cpu.Small {
					small++
				}
			}
			if len(m.CPUs) != c.cpus || len(m.Objects(topo.Core)) != c.cores || small != c.small || m.Allowed.Len() == 0 {
				t.Errorf("got %+v", m)
			}
		})
	}
}

func TestSets(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "3": {3}, "0-2,5": {0, 1, 2, 5}, " 64-65,1\n": {1, 64, 65}} {
		s, err := topo.ParseSet(text)
		if err != nil || !slices.Equal(s.List(), want) {
			t.Errorf("ParseSet(%q): got %v, %v, want %v", text, s.List(), err, want)
		}
	}
	for _, text := range []string{",", "x", "3-1", "-1", "0-", "0-99999999", "1,,2"} {
		if s, err := topo.ParseSet(text); err == nil {
			t.Errorf("ParseSet(%q): got %v, want an error", text, s)
		}
	}
	a, b := topo.SetOf(0, 5, 70), topo.SetOf(5, 6)
	if got := fmt.Sprint(a.And(b), a.Or(b), a.Len(), a.Contains(b), a.Contains(topo.SetOf(70)), b.First(), topo.Set{}.First()); got != "5 0,5-6,70 3 false true 5 -1" {
		t.Errorf("got %s", got)
	}
}

func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"0-3,8", "", "9-", "1,1,1", "65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := topo.ParseSet(text)
		if err != nil {
			return
		}
		again, err := topo.ParseSet(s.String())
		if err != nil || !slices.Equal(again.List(), s.List()) {
			t.Errorf("%q: got %v, then %v, %v", text, s.List(), again.List(), err)
		}
	})
}

func BenchmarkHere(b *testing.B) {
	for b.Loop() {
		topo.Here()
	}
}
