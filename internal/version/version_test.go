package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestLineNamesCommandAndNumber(t *testing.T) {
	for command, want := range map[string]string{"gorun": "gorun " + Number, "a2a": "a2a of gorun " + Number} {
		if got := Line(command); !strings.HasPrefix(got, want) {
			t.Errorf("Line(%s) = %q, want it to begin with %q", command, got, want)
		}
	}
}

func TestRevision(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings []debug.BuildSetting
		want     string
	}{
		{"none", nil, ""},
		{"clean", []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		{"changed", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "0123"}}, "0123+"},
		{"changed but unknown", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
	} {
		if got := revision(c.settings); got != c.want {
			t.Errorf("%s: revision = %q, want %q", c.name, got, c.want)
		}
	}
}
