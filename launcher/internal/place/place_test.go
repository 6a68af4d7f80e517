package place

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestBySlot(t *testing.T) {
	for _, c := range []struct {
		name  string
		np    int
		hosts []Host
		want  []Share
		err   string // part of the error
	}{
		{"one host", 3, []Host{{"a", 3}}, []Share{{"a", count(0, 3)}}, ""},
		{"two hosts, full", 4, []Host{{"a", 2}, {"b", 2}}, []Share{{"a", count(0, 2)}, {"b", count(2, 2)}}, ""},
		{"the last is not filled", 3, []Host{{"a", 2}, {"b", 2}}, []Share{{"a", count(0, 2)}, {"b", count(2, 1)}}, ""},
		{"hosts without ranks are left out", 1, []Host{{"a", 2}, {"b", 2}}, []Share{{"a", count(0, 1)}}, ""},
		{"no slots stands for one", 2, []Host{{"a", 0}, {"b", 0}}, []Share{{"a", count(0, 1)}, {"b", count(1, 1)}}, ""},
		{"named twice", 3, []Host{{"a", 1}, {"b", 1}, {"a", 1}}, []Share{{"a", count(0, 2)}, {"b", count(2, 1)}}, ""},
		{"huge slots", 2, []Host{{"a", math.MaxInt}, {"a", math.MaxInt}}, []Share{{"a", count(0, 2)}}, ""},
		{"too few", 5, []Host{{"a", 2}, {"b", 2}}, nil, "5 ranks need 5 slots, but there are 4: a:2, b:2;"},
		{"many hosts, too few", 99, []Host{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}, {"h", 1}, {"i", 1}}, nil, "h:1, and 1 more hosts"},
		{"no ranks", 0, []Host{{"a", 2}}, nil, "0 ranks"},
		{"negative ranks", -3, []Host{{"a", 2}}, nil, "-3 ranks"},
		{"negative slots", 1, []Host{{"a", -2}}, nil, "host a offers -2 slots"},
		{"no name", 1, []Host{{"a", 1}, {"", 2}}, nil, "host 2 of the list has no name"},
		{"no hosts", 1, nil, nil, "there are 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := BySlot(c.np, c.hosts)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("BySlot(%d, %v): got %v, %v; want an error with %q", c.np, c.hosts, got, err, c.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("BySlot(%d, %v): got %v, %v; want %v", c.np, c.hosts, got, err, c.want)
			}
		})
	}
}
