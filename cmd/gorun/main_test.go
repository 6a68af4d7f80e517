package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/launcher"
)

func TestRunTexts(t *testing.T) {
	for _, c := range []struct {
		name, args  string
		status      int
		out, errOut string // beginnings; "" is empty
	}{
		{"help", "--help", 0, "Usage: gorun [options] program [arguments] [: ", ""},
		{"version", "-V", 0, "gorun ", ""},
		{"usage", "-np x a", statusUsage, "", "gorun: -np: found \"x\""},
	} {
		var out, errOut bytes.Buffer
		status := run(context.Background(), line(nil, strings.Fields(c.args)...), stdio{strings.NewReader(""), &out, &errOut})
		if status != c.status || !begins(out.String(), c.out) || !begins(errOut.String(), c.errOut) {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %d, %q..., %q...", c.name, status, out.String(), errOut.String(), c.status, c.out, c.errOut)
		}
	}
}

func begins(got, want string) bool {
	return strings.HasPrefix(got, want) && (want != "" || got == "")
}

func TestHelpNamesEveryOption(t *testing.T) {
	text := help("all")
	for _, o := range options() {
		if named := strings.Contains(text, shown(&o, o.names[0])+" ") || strings.Contains(text, shown(&o, o.names[0])+","); named != (o.family != "") {
			t.Errorf("--%s: named in the help: %v, family %q", o.names[0], named, o.family)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > 130 {
			t.Errorf("help line of %d bytes: %s", len(line), line)
		}
	}
}

// --help alone shows some options and all topics; a topic has the options of its
// family, an option its row; a word that is neither is told the nearest.
func TestHelpOnTopic(t *testing.T) {
	overview := help("")
	for _, tp := range topics() {
		if !strings.Contains(overview, "\n   "+tp.name+" ") {
			t.Errorf("--help names no topic %s", tp.name)
		}
		if text, ok := helpOn(tp.name); !ok || text == "" || strings.Count(overview, "\n") > 60 {
			t.Errorf("--help %s: %q, %v; --help has %d lines, want at most 60", tp.name, text, ok, strings.Count(overview, "\n"))
		}
	}
	for _, o := range options() {
		for _, name := range o.allNames() {
			topic := topicName(o.family)
			if text, _ := helpOn(topic); o.family != "" && !strings.Contains(text, row(&o)) {
				t.Errorf("--help %s: no row of --%s", topic, name)
			}
			if text, ok := helpOn(name); o.family != "" && !slices.Contains(topicNames(), name) && (!ok || text != row(&o)) {
				t.Errorf("--help %s: got %q, %v; want %q", name, text, ok, row(&o))
			}
		}
	}
	for _, c := range []struct {
		args, topic, err string
	}{
		{"--help placement", "placement", ""},
		{"-h exit-status", "exit-status", ""},
		{"-vh hosts", "hosts", ""},
		{"--help=output", "output", ""},
		{"--help bind-to", "bind-to", ""},
		{"--help", "", ""},
		{"--help -np 4", "", ""},
		{"--help=false prog", "", ""},
		{"--help placment", "", `--help: found "placment", expected one of the topics job, environment, hosts, placement, devices, output, failures, open-mpi, help, exit-status, all, or an option; did you mean placement?`},
		{"--help bindto", "", "did you mean bind-to?"},
	} {
		req, err := parse(line(nil, strings.Fields(c.args)...))
		if c.err == "" && (err != nil || req.topic != c.topic) || c.err != "" && (err == nil || !strings.HasSuffix(err.Error(), c.err)) {
			t.Errorf("%s: topic %q, %v; want %q, %q", c.args, req.topic, err, c.topic, c.err)
		}
	}
	if text := help("environment"); !strings.Contains(text, "MPIEXEC_TIMEOUT") || !strings.Contains(text, "--unset-env") {
		t.Errorf("--help environment: got %q", text)
	}
}

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "here"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	job := launcher.Job{Dir: dir}
	for _, c := range []struct {
		name    string
		err     error
		status  int
		want    string
		written []writtenOption
	}{
		{"not found", &launcher.JobError{Field: "Argv", Value: "nosuch", ExitStatus: 127, Err: errors.New("not in PATH")}, 127, "gorun: nosuch: not in PATH\n", nil},
		{"not found but here", &launcher.JobError{Field: "Argv", Value: "here", ExitStatus: 127, Err: errors.New("not in PATH")}, 127, "gorun: here: not in PATH; ./here is there, but not executable; try chmod +x here\n", nil},
		{"not executable", &launcher.JobError{Field: "Argv", Value: "./x", ExitStatus: 126, Err: errors.New("permission denied")}, 126, "gorun: ./x: permission denied\n", nil},
		{"directory", &launcher.JobError{Field: "Dir", Value: "/nosuch", ExitStatus: 1, Err: errors.New("not there")}, statusUsage, "gorun: --wdir /nosuch: not there; expected a directory that exists\n", nil},
		{"host", &launcher.JobError{Field: "Hosts", Value: "a", ExitStatus: 1, Err: errors.New("far away")}, statusUsage, "gorun: -H a: far away; try --launcher fork, or no -H\n", nil},
		{"the agent", &launcher.JobError{Field: "Agents.Command", Value: "x", Err: errors.New("gone")}, statusFailed, "gorun: agent x: gone\n", nil},
		{"gorun itself", errors.New("out of descriptors"), statusFailed, "gorun: out of descriptors\n", nil},
		{"counted", &launcher.JobError{Field: "Placing.Map", Value: "ppr:1:node:nolocal", ExitStatus: 1, Err: errors.New("too many")}, statusUsage, "gorun: -N 1 --nolocal: too many\n",
			[]writtenOption{{"NP", "-np 4"}, {"Placing.Map", "-N 1"}, {"Placing.Map", "--nolocal"}}},
		{"mapped by the environment", &launcher.JobError{Field: "Placing.Map", Value: "soket", ExitStatus: 1, Err: errors.New("what?")}, statusUsage, "gorun: HYDRA_MAPPING=soket: what?\n",
			[]writtenOption{{"Placing.Map Placing.RankFile", "HYDRA_MAPPING=soket"}}},
		{"hosts of a file", &launcher.JobError{Field: "Hosts", Value: "a", ExitStatus: 1, Err: errors.New("far away")}, statusUsage, "gorun: -f list: a: far away; try --launcher fork, or no -H\n",
			[]writtenOption{{"Hosts", "-f list"}}},
	} {
		var out bytes.Buffer
		if status := explain(c.err, job, c.written, &out); status != c.status || out.String() != c.want {
			t.Errorf("%s: status %d, %q; want %d, %q", c.name, status, out.String(), c.status, c.want)
		}
	}
}

// What the rows of options say they fill is there.
func TestOptionsFillFields(t *testing.T) {
	for _, o := range everyOption() {
		for field := range strings.FieldsSeq(o.fills) {
			if at := reflect.TypeFor[launcher.Job](); !hasField(at, field) {
				t.Errorf("--%s fills %s, which %v has not", o.names[0], field, at)
			}
		}
	}
}

func hasField(in reflect.Type, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	f, ok := in.FieldByName(name)
	if ok && more && f.Type.Kind() == reflect.Pointer {
		f.Type = f.Type.Elem()
	}
	return ok && (!more || hasField(f.Type, rest))
}

func TestWhere(t *testing.T) {
	for _, c := range []struct {
		hosts []launcher.Host
		want  string
	}{
		{nil, ""}, {[]launcher.Host{{Name: "a", Slots: 2}}, " on a:2"}, {[]launcher.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 1}}, " on a:2,b:1"},
	} {
		if got := where(c.hosts); got != c.want {
			t.Errorf("where(%v) = %q, want %q", c.hosts, got, c.want)
		}
	}
}

func TestTellRanks(t *testing.T) {
	env := append(make([]string, 0, 8), "A=1")
	one := launcher.Job{Argv: []string{"p"}, Env: env}
	two := launcher.Job{Apps: []launcher.App{{Env: env}, {Env: env[:0]}}}
	apps := two.Apps
	tellRanks(&one, "X=1")
	tellRanks(&two, "Y=1")
	if got := fmt.Sprint(one.Env, two.Env == nil, two.Apps[0].Env, two.Apps[1].Env, apps[0].Env); got != "[A=1 X=1] true [A=1 Y=1] [Y=1] [A=1]" {
		t.Errorf("got %s", got)
	}
}
