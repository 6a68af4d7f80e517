package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// release is the kernel's version as two numbers.
func release(text string) (major, minor int, known bool) {
	first, rest, _ := strings.Cut(text, ".")
	second := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = rest[:i]
	}
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(second)
	return major, minor, err == nil
}

func kernel(_ context.Context, v *View) Finding {
	text := v.text("proc/sys/kernel/osrelease")
	major, minor, known := release(text)
	if !known {
		return note("", "its version %q cannot be read, expected numbers such as 6.1", text)
	}
	before := func(a, b int) bool { return major < a || major == a && minor < b }
	const newer = "use a kernel of 5.4 or newer"
	switch {
	case before(4, 18):
		return problem(newer, "%s: older than 4.18, the oldest that gorun supports", text)
	case before(5, 4):
		return note(newer, "%s: no pidfds to wait for (5.4): a thread waits for each rank", text)
	}
	return ok("%s", text)
}

func procfs(_ context.Context, v *View) Finding {
	if v.text("proc/self/status") == "" {
		return problem("mount -t proc proc /proc", "/proc is not mounted: gorun cannot tell what ranks do or have left behind, and finds its helpers by the name it was called as")
	}
	return ok("mounted")
}

func seccomp(_ context.Context, v *View) Finding {
	switch v.status("Seccomp") {
	case "0":
		return ok("no filter")
	case "2":
		return ok("a filter; the checks memfd, process_vm and membarrier show what it permits")
	case "1":
		return problem("run it elsewhere", "strict: no program can be started")
	}
	return ok("not known")
}

func sysctls(_ context.Context, v *View) Finding {
	need := uint64(v.Ranks)*threadsEach + threadsBase
	var found, fixes []string
	for _, s := range [...]struct {
		name, file string
		need       uint64
	}{
		{"kernel.pid_max", "kernel/pid_max", need},
		{"kernel.threads-max", "kernel/threads-max", need},
		{"fs.file-max", "fs/file-max", uint64(v.Ranks)*64 + 1024},
		{"vm.max_map_count", "vm/max_map_count", 4*uint64(v.Ranks) + 1024},
		{"net.core.somaxconn", "net/core/somaxconn", min(uint64(v.Ranks), 4096)},
	} {
		n, known := v.number("proc/sys", s.file)
		if !known {
			continue
		}
		text := s.name + " " + strconv.FormatUint(n, 10)
		if n >= 1<<62 {
			text = s.name + " none"
		}
		if n < s.need {
			text += fmt.Sprintf(" (%d needed)", s.need)
			fixes = append(fixes, fmt.Sprintf("sysctl -w %s=%d", s.name, 2*s.need))
		}
		found = append(found, text)
	}
	if fixes != nil {
		return problem(strings.Join(fixes, "; "), "%s", strings.Join(found, ", "))
	}
	if found == nil {
		return ok("not known")
	}
	return ok("%s", strings.Join(found, ", "))
}
