package host

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// corePattern is where the kernel says what becomes of core dumps.
const corePattern = "/proc/sys/kernel/core_pattern"

// coreFile is where the memory of a rank was dumped, if that can be told: the
// kernel's pattern is followed, and the file must be there. A program that takes
// dumps in ("|program" in the pattern) is named instead.
func coreFile(pid int, sig syscall.Signal, app *AppSpec) string {
	pattern, err := os.ReadFile(corePattern)
	if err != nil {
		return ""
	}
	usesPID, _ := os.ReadFile("/proc/sys/kernel/core_uses_pid")
	name := coreName(strings.TrimSpace(string(pattern)), strings.TrimSpace(string(usesPID)) == "1", pid, sig, app.Argv[0])
	if strings.HasPrefix(name, "|") || name == "" {
		return name
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(app.Dir, name)
		if abs, err := filepath.Abs(name); err == nil {
			name = abs
		}
	}
	if _, err := os.Stat(name); err != nil {
		return "" // the rank was elsewhere, or the pattern is of another world of files
	}
	return name
}

// coreName follows core(5)'s pattern. "" when it has a specifier whose value is
// not known here.
func coreName(pattern string, usesPID bool, pid int, sig syscall.Signal, program string) string {
	if helper, ok := strings.CutPrefix(pattern, "|"); ok {
		if words := strings.Fields(helper); len(words) > 0 {
			return "|" + words[0]
		}
		return ""
	}
	base := path.Base(program)
	if len(base) > 15 {
		base = base[:15] // as the kernel cuts it
	}
	var b strings.Builder
	hasPID := false
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			b.WriteByte(pattern[i])
			continue
		}
		if i++; i == len(pattern) {
			break // the kernel drops it
		}
		switch pattern[i] {
		case '%':
			b.WriteByte('%')
		case 'p':
			hasPID = true
			b.WriteString(strconv.Itoa(pid))
		case 's':
			b.WriteString(strconv.Itoa(int(sig)))
		case 'u':
			b.WriteString(strconv.Itoa(os.Getuid()))
		case 'g':
			b.WriteString(strconv.Itoa(os.Getgid()))
		case 'e':
			b.WriteString(base)
		case 'h':
			name, err := os.Hostname()
			if err != nil {
				return ""
			}
			b.WriteString(name)
		default:
			return ""
		}
	}
	if usesPID && !hasPID {
		b.WriteString("." + strconv.Itoa(pid))
	}
	return b.String()
}
