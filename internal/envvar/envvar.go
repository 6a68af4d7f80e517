// Package envvar looks up variables in an environment that has the form of os.Environ.
package envvar

import (
	"slices"
	"strings"
)

// Lookup is the value of a variable. The last of equal names wins, as for a process's own environment.
func Lookup(environ []string, name string) (value string, ok bool) {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Get is the value of a variable, "" where it is not set.
func Get(environ []string, name string) string {
	value, _ := Lookup(environ, name)
	return value
}
