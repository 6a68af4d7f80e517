package nearest

import "testing"

func TestName(t *testing.T) {
	names := []string{"np", "wdir", "timeout", "tag-output", "host", "help"}
	for _, c := range []struct{ name, typed, want string }{
		{"exact", "wdir", "wdir"},
		{"letter dropped", "tagoutput", "tag-output"},
		{"letter added", "wwdir", "wdir"},
		{"letter replaced", "tineout", "timeout"},
		{"neighbours swapped", "hots", "host"},
		{"one of two letters", "nq", "np"},
		{"too far", "bind-to", ""},
		{"nothing alike", "zzzz", ""},
		{"empty", "", ""},
	} {
		if got := Name(c.typed, names); got != c.want {
			t.Errorf("%s: Name(%q) = %q, want %q", c.name, c.typed, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1},
		{"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcdef", "badcfe", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
