package host

import (
	"os"
	"strconv"
	"testing"
)

func TestCoreName(t *testing.T) {
	uid := strconv.Itoa(os.Getuid())
	for _, c := range []struct {
		pattern string
		usesPID bool
		want    string
	}{
		{"core", false, "core"},
		{"core", true, "core.42"},
		{"core.%p", true, "core.42"},
		{"/var/core/%e.%p.%s", false, "/var/core/a-program-with-.42.11"},
		{"%u-100%%", false, uid + "-100%"},
		{"core%", false, "core"},
		{"core.%t", false, ""}, // the time of the dump
		{"|/usr/lib/systemd/systemd-coredump %P %u", false, "|/usr/lib/systemd/systemd-coredump"},
		{"|", false, ""},
		{"", false, ""},
	} {
		if got := coreName(c.pattern, c.usesPID, 42, 11, "./bin/a-program-with-a-long-name"); got != c.want {
			t.Errorf("coreName(%q, %v): got %q, want %q", c.pattern, c.usesPID, got, c.want)
		}
	}
}
