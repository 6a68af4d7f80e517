// Package topotest makes machines of the recorded topologies in testdata/topo.
package topotest

import (
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/testdata"
)

// Names are the recorded topologies.
func Names(t testing.TB) []string {
	t.Helper()
	entries, err := testdata.Topologies.ReadDir("topo")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	return names
}

// Machine is a recorded machine.
func Machine(t testing.TB, name string) topo.Machine {
	t.Helper()
	return topo.Read(Files(t, name))
}

// Files are the files of a recorded machine.
func Files(t testing.TB, name string) fs.FS {
	t.Helper()
	text, err := testdata.Topologies.ReadFile("topo/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return Parse(t, name, string(text))
}

// Parse makes the files that a record of a machine tells of; name is what
// messages call it.
func Parse(t testing.TB, name, text string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	var last []string
	var err error
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if more, ok := strings.CutPrefix(line, "| "); ok {
			for _, p := range last {
				files[p].Data = append(files[p].Data, more+"\n"...)
			}
			continue
		}
		p, content, ok := strings.Cut(line, ": ")
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case !ok:
			t.Fatalf("%s: %q is no line of a recorded topology", name, line)
		}
		if last, err = paths(p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range last {
			if files[p] != nil {
				t.Fatalf("%s: two lines for %s", name, p)
			}
			files[p] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	return files
}

// paths are those that a path with a list in it stands for.
func paths(p string) ([]string, error) {
	before, rest, ok := strings.Cut(p, "[")
	if !ok {
		return []string{p}, nil
	}
	list, after, _ := strings.Cut(rest, "]")
	cpus, err := topo.ParseSet(list)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, c := range cpus.List() {
		all = append(all, before+strconv.Itoa(c)+after)
	}
	return all, nil
}
