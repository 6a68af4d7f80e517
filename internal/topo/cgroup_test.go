package topo

import (
	"io/fs"
	"runtime"
	"testing"
	"testing/fstest"
)

// files are the files of a machine.
func files(contents map[string]string) fs.FS {
	m := fstest.MapFS{}
	for name, text := range contents {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"nothing mounted", nil, 0},
		{"unified without a limit", map[string]string{
			"proc/self/cgroup":        "0::/a\n",
			"sys/fs/cgroup/a/cpu.max": "max 100000\n",
		}, 0},
		{"unified", map[string]string{
			"proc/self/cgroup":        "0::/a\n",
			"sys/fs/cgroup/a/cpu.max": "150000 100000\n",
		}, 1.5},
		{"the parent is tighter", map[string]string{
			"proc/self/cgroup":          "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
			"sys/fs/cgroup/a/cpu.max":   "200000 100000\n",
		}, 2},
		{"container that sees its root only", map[string]string{
			"proc/self/cgroup":      "0::/docker/abc\n",
			"sys/fs/cgroup/cpu.max": "100000 100000\n",
		}, 1},
		{"both hierarchies, the second has the controller", map[string]string{
			"proc/self/cgroup":                   "4:memory:/m\n0::/a\n",
			"sys/fs/cgroup/unified/cgroup.procs": "1\n",
			"sys/fs/cgroup/unified/a/cpu.max":    "250000 100000\n",
		}, 2.5},
		{"old hierarchy", map[string]string{
			"proc/self/cgroup":                         "4:memory:/m\n3:cpu,cpuacct:/j\n",
			"sys/fs/cgroup/cpu/j/cpu.cfs_quota_us":     "300000\n",
			"sys/fs/cgroup/cpu/j/cpu.cfs_period_us":    "100000\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":       "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":      "100000\n",
			"sys/fs/cgroup/memory/m/cpu.cfs_quota_us":  "1\n",
			"sys/fs/cgroup/memory/m/cpu.cfs_period_us": "100000\n",
		}, 3},
		{"nonsense", map[string]string{
			"proc/self/cgroup":        "x\n0::\n0::/a\n:::::\n",
			"sys/fs/cgroup/a/cpu.max": "many few\n",
			"sys/fs/cgroup/cpu.max":   "-5 0\n",
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := quota(files(c.files)); got != c.want {
				t.Errorf("quota of %v: got %v, want %v", c.files, got, c.want)
			}
		})
	}
}

func TestOOMKills(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"unknown", nil, 0},
		{"unified", map[string]string{
			"proc/self/cgroup":              "0::/a\n",
			"sys/fs/cgroup/a/memory.events": "low 0\noom 4\noom_kill 3\n",
		}, 3},
		{"old hierarchy", map[string]string{
			"proc/self/cgroup":                          "4:memory:/m\n",
			"sys/fs/cgroup/memory/m/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n",
		}, 2},
		{"both", map[string]string{
			"proc/self/cgroup":                          "4:memory:/m\n0::/u\n",
			"sys/fs/cgroup/memory/m/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n",
		}, 2},
		{"a container that does not see its path", map[string]string{
			"proc/self/cgroup":            "0::/docker/1234\n",
			"sys/fs/cgroup/memory.events": "oom_kill 5\n",
		}, 5},
		{"its own, not that of all", map[string]string{
			"proc/self/cgroup":              "0::/a\n",
			"sys/fs/cgroup/memory.events":   "oom_kill 5\n",
			"sys/fs/cgroup/a/memory.events": "oom_kill 0\n",
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := oomKills(files(c.files)); got != c.want {
				t.Errorf("oom kills of %v: got %v, want %v", c.files, got, c.want)
			}
		})
	}
}

func TestCPUs(t *testing.T) {
	if got := CPUs(); got < 1 || got > runtime.NumCPU() {
		t.Errorf("CPUs: got %d, want 1..%d", got, runtime.NumCPU())
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"none", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, ""},
		{"more than the CPUs", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "400000 100000\n"}, ""},
		{"above a group of its own", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, "sys/fs/cgroup/a"},
		{"of a container", map[string]string{"proc/self/cgroup": "0::/ranks\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, "sys/fs/cgroup"},
		{"of a container, old hierarchy", map[string]string{"proc/self/cgroup": "3:cpu:/docker/x\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, "sys/fs/cgroup/cpu/docker/x"},
	} {
		if got := limit(files(c.files), 4); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
