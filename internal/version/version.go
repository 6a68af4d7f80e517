// Package version says which gorun this is, for every command's --version.
package version

import (
	"runtime"
	"runtime/debug"
)

// Number is the last release before this source tree, as CHANGELOG.md has it; the commit
// that --version prints beside it says what came after.
const Number = "0.1.0"

// Line is what --version of the named command prints, without the newline:
// name and number, the commit where the build knows it, and the toolchain.
func Line(command string) string {
	line := command + " " + Number
	if command != "gorun" {
		line = command + " of gorun " + Number
	}
	if commit := Commit(); commit != "" {
		line += " " + commit
	}
	return line + ", " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}

// Commit is the short commit of the build, marked "+" when files were changed
// since; empty where the build did not record it.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return revision(info.Settings)
}

// revision is the short commit of a build from a checkout, marked "+" when
// files were changed since; empty where the build did not record it.
func revision(settings []debug.BuildSetting) string {
	commit, changed := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if commit == "" {
		return ""
	}
	return commit[:min(len(commit), 12)] + changed
}
