package envvar

import "testing"

func TestLookup(t *testing.T) {
	environ := []string{"A=first", "AB=2", "A=last", "EMPTY=", "odd"}
	for _, c := range []struct {
		name, want string
		ok         bool
	}{{"A", "last", true}, {"AB", "2", true}, {"EMPTY", "", true}, {"B", "", false}, {"odd", "", false}} {
		if got, ok := Lookup(environ, c.name); got != c.want || ok != c.ok || Get(environ, c.name) != c.want {
			t.Errorf("%s: found %q, %t, expected %q, %t", c.name, got, ok, c.want, c.ok)
		}
	}
}
