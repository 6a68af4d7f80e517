package hostfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	for _, c := range []struct {
		text string
		want []Host
	}{
		{"a", []Host{{Name: "a"}}},
		{"a:2,b", []Host{{Name: "a", Slots: 2}, {Name: "b"}}},
		{"a:*,b:AUTO", []Host{{Name: "a", Slots: Auto}, {Name: "b", Slots: Auto}}},
		{"+n0", []Host{{Name: "+n0"}}},
		{"a,a:3", []Host{{Name: "a"}, {Name: "a", Slots: 3}}},
		{"me@a:2", []Host{{Name: "a", User: "me", Slots: 2}}},
		{"[::1]:3,[fe80::1%eth0]", []Host{{Name: "::1", Slots: 3}, {Name: "fe80::1%eth0"}}},
		{"10.0.0.1:2", []Host{{Name: "10.0.0.1", Slots: 2}}},
		{"n[1-3]", []Host{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}},
		{"n[08-10,7]:2", []Host{{Name: "n08", Slots: 2}, {Name: "n09", Slots: 2}, {Name: "n10", Slots: 2}, {Name: "n7", Slots: 2}}},
		{"r[1-2]n[01-02].x,b", []Host{{Name: "r1n01.x"}, {Name: "r1n02.x"}, {Name: "r2n01.x"}, {Name: "r2n02.x"}, {Name: "b"}}},
		{"me@n[9-11]", []Host{{Name: "n9", User: "me"}, {Name: "n10", User: "me"}, {Name: "n11", User: "me"}}},
	} {
		got, err := List(c.text)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("List(%q) = %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}

func TestFind(t *testing.T) {
	hosts := []Host{{Name: "n1"}, {Name: "n2.cluster"}, {Name: "n2.other"}, {Name: "10.0.0.1"}}
	for name, want := range map[string]int{"n1": 0, "n1.cluster": 0, "n2": 1, "n2.other": 2, "n2.third": 1, "n3": -1, "n": -1, "10.0.0.1": 3, "10.0.0.2": -1, "10": -1} {
		if got := Find(hosts, name); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}

func TestListRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                        `found "" in "", expected NAME or NAME:SLOTS`,
		"a,,b":                    `found "" in "a,,b", expected NAME`,
		":2":                      `found ":2" in ":2", expected NAME`,
		"a:0":                     `found "a:0" in "a:0", expected a number of slots, 1 or more`,
		"a:x":                     "expected a number of slots",
		"a:":                      "expected a number of slots",
		"a:9999999999":            "expected a number of slots",
		"fe80::1":                 "(an IPv6 address goes in brackets)",
		"[::1]2":                  "expected only :SLOTS after the bracket",
		"[::1":                    "expected an IPv6 address in brackets",
		"[1-3]":                   "a range of hosts has a name before the bracket",
		"n[1-":                    "expected a ] that closes the range",
		"n[]":                     "expected numbers and ranges",
		"n[3-1]":                  "expected numbers and ranges",
		"n[a-b]":                  "expected numbers and ranges",
		"n[1-99999999]":           "expected numbers and ranges",
		"n[1-999]m[1-999]":        "65536 hosts at most",
		"n[0-40000],m[0-40000]":   "more than 65536 hosts",
		"n[99999999999999999999]": "expected numbers and ranges",
		"-oProxyCommand=x":        "expected NAME",
		"-l@a":                    "a user's name before the @",
		"@a":                      "a user's name before the @",
		"a b":                     "expected NAME",
		"a\x1b[2J":                "expected a ] that closes the range",
	} {
		got, err := List(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("List(%q) = %v, %v; want an error with %s", text, got, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Host
	}{
		{"Open MPI", "a slots=2 max_slots=4\n# comment\n\n  b slots = 3 # more\nme@c\n",
			[]Host{{Name: "a", Slots: 2, Max: 4}, {Name: "b", Slots: 3}, {Name: "c", User: "me"}}},
		{"its other words", "a cpu=2 slots-max=3 boards=1 sockets=2 cores-per-socket=8\nb count=2 user_name=\"me\" // here\n",
			[]Host{{Name: "a", Slots: 2, Max: 3}, {Name: "b", Slots: 2, User: "me"}}},
		{"Hydra", "a:2\nb:3 user=me\nc\r\n", []Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 3, User: "me"}, {Name: "c"}}},
		{"batch systems repeat names", "a\na\nb\na\n", []Host{{Name: "a", Slots: 3}, {Name: "b"}}},
		{"slots add up", "a slots=2\nb\na slots=3 max-slots=4\n", []Host{{Name: "a", Slots: 5, Max: 5}, {Name: "b"}}},
		{"ranges", "n[01-03]:2\n^n02\n", []Host{{Name: "n01", Slots: 2}, {Name: "n03", Slots: 2}}},
		{"addresses", "::1 slots=2\n[fe80::2]:3\n10.1.2.3:4\nme@fe80::9\n",
			[]Host{{Name: "::1", Slots: 2}, {Name: "fe80::2", Slots: 3}, {Name: "10.1.2.3", Slots: 4}, {Name: "fe80::9", User: "me"}}},
		{"the same said twice", "a:2 slots=2", []Host{{Name: "a", Slots: 2}}},
	} {
		got, err := Parse(c.text, "hosts")
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: Parse(%q)\n got %v, %v\nwant %v", c.name, c.text, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "hosts: found no host, expected one a line; try: node01 slots=8",
		"# nothing\n":           "hosts: found no host",
		"^a\na":                 "hosts: found no host",
		"a\nb slot=2":           `hosts:2: found "slot=2", expected slots=N, max_slots=N or user=NAME`,
		"a 4":                   `hosts:1: found "4", expected slots=N`,
		"a slots=":              `hosts:1: found "slots=", expected slots=N`,
		"a slots=x":             `hosts:1: found "slots=x", expected a number, 1 or more`,
		"a slots=0":             `hosts:1: found "slots=0", expected a number, 1 or more`,
		"a slots=4 max_slots=2": "hosts:1: found max_slots=2 below the 4 slots",
		"a:2 slots=3":           "hosts:1: found two numbers of slots, 2 and 3",
		"\n\n+n1":               `hosts:3: found "+n1", expected a host's name: hosts relative`,
		"rank 0=a slot=1":       `hosts:1: found "rank", expected a host's name; a rankfile is given with --rankfile`,
		"a binding=core":        `hosts:1: found "binding=core", expected no binding of a single host; --bind-to`,
		"a port=22":             `hosts:1: found "port=22", expected no port`,
		"a user=-x":             `hosts:1: found "user=-x", expected a user's name`,
		"n[1-2":                 `hosts:1: found "n[1-2", expected a ] that closes the range`,
		"n[0-65535]\nm":         "hosts:2: found more than 65536 hosts",
	} {
		got, err := Parse(text, "hosts")
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Parse(%q) = %d hosts, %v; want %s", text, len(got), err, want)
		}
	}
}

func ExampleParse() {
	hosts, err := Parse("node[01-02] slots=8\nme@gpu slots=2\n", "hosts.txt")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range hosts {
		fmt.Printf("%s %d %q\n", h.Name, h.Slots, h.User)
	}
	// Output:
	// node01 8 ""
	// node02 8 ""
	// gpu 2 "me"
}

func FuzzParse(f *testing.F) {
	f.Add("a slots=2 max_slots=4\n# c\nn[01-04,7]:2\n^n02\nme@fe80::1 user=x\n")
	f.Add("a:2,b,[::1]:3")
	f.Add("a:*,b:auto")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func() ([]Host, error){
			func() ([]Host, error) { return List(text) },
			func() ([]Host, error) { return Parse(text, "f") },
		} {
			hosts, err := read()
			if (err == nil) == (len(hosts) == 0) {
				t.Fatalf("%q: %d hosts, error %v", text, len(hosts), err)
			}
			for _, h := range hosts {
				if !printable(h.Name) || h.Slots < 0 && h.Slots != Auto || h.Max != 0 && h.Max < h.Slots || h.User != "" && !printable(h.User) {
					t.Fatalf("%q: host %+v", text, h)
				}
			}
		}
	})
}

func TestLines(t *testing.T) {
	hosts, err := Lines("a slots=2\nb\n# c\na\nd[1-2]\n^d1\n", "f")
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); err != nil || got != "a b a d2" {
		t.Errorf("got %s, %v, want a b a d2", got, err)
	}
	if _, err := Lines("a slots=x\n", "f"); err == nil || !strings.HasPrefix(err.Error(), "f:1: ") {
		t.Errorf("got %v", err)
	}
}
