package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/yardstick"
)

// thisMachine describes where the ranks run; what cannot be found stays empty.
func thisMachine() machine {
	m := machine{Cores: topo.CPUs(), CPU: runtime.GOARCH}
	if name := value("/proc/cpuinfo", "model name", ":"); name != "" {
		m.CPU = name
	}
	kib, _ := strconv.ParseInt(strings.TrimSuffix(value("/proc/meminfo", "MemTotal", ":"), " kB"), 10, 64)
	m.Memory = kib << 10
	m.System = strings.Trim(value("/etc/os-release", "PRETTY_NAME", "="), `"`)
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	c, us := yardstick.Take(), func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	m.Costs = &costs{us(c.Call), us(c.Fault), us(c.Hand), us(c.Line), us(c.Fork)}
	return m
}

// value is what stands behind the first key of that name in a file.
func value(file, key, separator string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, separator); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
