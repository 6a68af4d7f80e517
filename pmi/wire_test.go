package pmi

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseLine(t *testing.T) {
	cases := map[string]struct {
		line string
		want []Field
		err  error
	}{
		"one":              {"cmd=get_maxes\n", []Field{{"cmd", "get_maxes"}}, nil},
		"no newline":       {"cmd=get_maxes", []Field{{"cmd", "get_maxes"}}, nil},
		"fields":           {"cmd=init pmi_version=1 pmi_subversion=1\n", []Field{{"cmd", "init"}, {"pmi_version", "1"}, {"pmi_subversion", "1"}}, nil},
		"many blanks":      {"  cmd=put   key=k  value=v\n", []Field{{"cmd", "put"}, {"key", "k"}, {"value", "v"}}, nil},
		"value to the end": {"cmd=put key=k value=a b=c  d \n", []Field{{"cmd", "put"}, {"key", "k"}, {"value", "a b=c  d "}}, nil},
		"empty value":      {"cmd=put key=k value=\n", []Field{{"cmd", "put"}, {"key", "k"}, {"value", ""}}, nil},
		"words":            {"cmd=publish_name service=my  own svc port=p q \n", []Field{{"cmd", "publish_name"}, {"service", "my  own svc"}, {"port", "p q"}}, nil},
		"equals in a word": {"cmd=lookup_name service=a==b\n", []Field{{"cmd", "lookup_name"}, {"service", "a==b"}}, nil},
		"word of equals":   {"cmd=x a= =b c=d", []Field{{"cmd", "x"}, {"a", " =b"}, {"c", "d"}}, nil},
		"mcmd":             {"mcmd=spawn\n", []Field{{"mcmd", "spawn"}}, nil},
		"empty":            {"\n", nil, ErrSyntax},
		"blank":            {"   \n", nil, ErrSyntax},
		"no command":       {"key=k cmd=get\n", nil, ErrSyntax},
		"empty command":    {"cmd= key=k\n", nil, ErrSyntax},
		"a word first":     {"hello cmd=get\n", nil, ErrSyntax},
		"no key":           {"=get\n", nil, ErrSyntax},
		"nul":              {"cmd=get key=a\x00b\n", nil, ErrSyntax},
		"two lines":        {"cmd=get\ncmd=put\n", nil, ErrSyntax},
		"longest":          {"cmd=put value=" + strings.Repeat("x", LineMax-14), []Field{{"cmd", "put"}, {"value", strings.Repeat("x", LineMax-14)}}, nil},
		"too long":         {"cmd=put value=" + strings.Repeat("x", LineMax-13), nil, ErrLine},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := ParseLine([]byte(c.line))
			if !errors.Is(err, c.err) || (c.err == nil && !reflect.DeepEqual(m.Fields, c.want)) {
				t.Errorf("ParseLine(%q)\n got %q, %v\nwant %q, %v", clip(c.line), m.Fields, err, c.want, c.err)
			}
		})
	}
}

func TestNewMessage(t *testing.T) {
	m := NewMessage("put", "kvsname", "n", "key", "k", "value", "a b")
	if got, want := string(m.AppendTo([]byte("x"))), "xcmd=put kvsname=n key=k value=a b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, ok := m.Int("key"); ok {
		t.Error("Int of no number: ok")
	}
	if got := (Message{}).Cmd(); got != "" {
		t.Errorf("command of nothing: %q", got)
	}
}

func FuzzParseLine(f *testing.F) {
	for _, s := range []string{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=put kvsname=k key=a value=1 2=3", "cmd=publish_name service=my svc port=tag#0$p",
		"mcmd=spawn", "cmd=get_result rc=-1 msg=key_a_not_found value=unknown", "cmd=x a= =b c=d",
		"cmd=get_result value=(vector,(0,1,2)) found=TRUE", ""} {
		f.Add([]byte(s + "\n"))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := ParseLine(line)
		if err != nil {
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrLine) {
				t.Errorf("%q: %v", line, err)
			}
			return
		}
		if m.Cmd() == "" {
			t.Errorf("%q: no command", line)
		}
		// Blanks between fields go; the rest reads back.
		again, err := ParseLine(m.AppendTo(nil))
		if errors.Is(err, ErrLine) {
			return // a line of exactly the limit gains its newline
		}
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%q reads back as %q, %v; want %q", line, again.Fields, err, m.Fields)
		}
	})
}

func TestMapping(t *testing.T) {
	round := make([]int, 600)
	for i := range round {
		round[i] = i % 3
	}
	cases := map[string]struct {
		hostOf []int
		want   string
	}{
		"one rank":       {[]int{0}, "(vector,(0,1,1))"},
		"one host":       {[]int{0, 0, 0, 0}, "(vector,(0,1,4))"},
		"two hosts":      {[]int{0, 0, 1, 1}, "(vector,(0,2,2))"},
		"uneven":         {[]int{0, 1, 1, 2}, "(vector,(0,1,1),(1,1,2),(2,1,1))"},
		"a rank each":    {[]int{0, 1, 2}, "(vector,(0,3,1))"},
		"round robin":    {[]int{0, 1, 0, 1}, "(vector,(0,2,1),(0,2,1))"},
		"backwards":      {[]int{2, 1, 0}, "(vector,(2,1,1),(1,1,1),(0,1,1))"},
		"last is short":  {[]int{0, 0, 1, 1, 2}, "(vector,(0,2,2),(2,1,1))"},
		"long and round": {round, "(vector,(0,3,1))"},
		"nothing":        {nil, "(vector)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Mapping(c.hostOf); got != c.want {
				t.Errorf("Mapping(%v)\n got %s\nwant %s", c.hostOf, got, c.want)
			}
		})
	}
}

func TestFromEnviron(t *testing.T) {
	cases := map[string]struct {
		environ string
		want    Env
		found   bool
		err     string
	}{
		"none":          {"PATH=/bin PMI_RANK=1", Env{FD: -1, Rank: -1}, false, ""},
		"fd":            {"PMI_FD=5 PMI_RANK=1 PMI_SIZE=4", Env{FD: 5, Rank: 1, Size: 4}, true, ""},
		"gorun":         {"PMI_FD=5 PMI_RANK=0 PMI_SIZE=1 GORUN_PMI=cards PMI_SPAWNED=1", Env{FD: 5, Size: 1, Cards: true, Spawned: true}, true, ""},
		"port":          {"PMI_PORT=vm:1 PMI_ID=3", Env{FD: -1, Rank: -1, Port: "vm:1", ID: "3"}, true, ""},
		"fd and port":   {"PMI_PORT=vm:1 PMI_ID=3 PMI_FD=5 PMI_RANK=1 PMI_SIZE=4", Env{FD: 5, Rank: 1, Size: 4, ID: "3"}, true, ""},
		"port and rank": {"PMI_PORT=vm:1 PMI_ID=3 PMI_RANK=3 PMI_SIZE=4", Env{FD: -1, Rank: 3, Size: 4, Port: "vm:1", ID: "3"}, true, ""},
		"port no id":    {"PMI_PORT=vm:1", Env{}, true, "PMI_ID"},
		"fd is a word":  {"PMI_FD=x PMI_RANK=0 PMI_SIZE=1", Env{}, true, "PMI_FD=x"},
		"fd below 0":    {"PMI_FD=-1 PMI_RANK=0 PMI_SIZE=1", Env{}, true, "PMI_FD=-1"},
		"no rank":       {"PMI_FD=5 PMI_SIZE=1", Env{}, true, "PMI_RANK is not set"},
		"no size":       {"PMI_FD=5 PMI_RANK=1", Env{}, true, "PMI_SIZE is not set"},
		"rank of size":  {"PMI_FD=5 PMI_RANK=4 PMI_SIZE=4", Env{}, true, "PMI_RANK=4 is not below PMI_SIZE=4"},
		"huge":          {"PMI_FD=5 PMI_RANK=0 PMI_SIZE=99999999999", Env{}, true, "PMI_SIZE=99999999999"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			env, found, err := FromEnviron(strings.Fields(c.environ))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want an error with %q", err, c.err)
				}
				return
			}
			if err != nil || found != c.found || env != c.want {
				t.Errorf("got %+v %v %v, want %+v %v", env, found, err, c.want, c.found)
			}
			if found && c.want.Port == "" {
				c.want.ID = ""
				if again, _, err := FromEnviron(env.Environ()); err != nil || again != c.want {
					t.Errorf("Environ reads back as %+v, %v", again, err)
				}
			}
		})
	}
}

func ExampleMapping() {
	fmt.Println(Mapping([]int{0, 0, 1, 1}))
	// Output: (vector,(0,2,2))
}
