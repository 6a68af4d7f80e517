package apps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// A row is an application and how it is run; doc.go says what the fields mean.
type row struct {
	name, field, mpi, first, run string
	packages                     []string
	np                           []int
	ranks, result                *regexp.Regexp
	varies                       []*regexp.Regexp
	unlike                       []string
	reason                       string
	version                      string // of the first package, found when it runs
	files                        []txtar.File
}

// rows reads all of testdata, in the order of the applications' names.
func rows(t *testing.T) (list []row) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || files == nil {
		t.Fatalf("no rows: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parse(txtar.Parse(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b row) int {
		return strings.Compare(strings.ToLower(a.name+a.mpi), strings.ToLower(b.name+b.mpi))
	})
	return list
}

func parse(a *txtar.Archive) (r row, err error) {
	r.files, r.np = a.Files, []int{2, 4}
	for line := range strings.Lines(string(a.Comment)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || value == "" {
			return r, fmt.Errorf("found %q, expected a key, a colon and a value", line)
		}
		var pattern *regexp.Regexp
		switch key {
		case "name":
			r.name = value
		case "field":
			r.field = value
		case "mpi":
			r.mpi = value
		case "first":
			r.first = value
		case "run":
			r.run = value
		case "packages":
			r.packages = strings.Fields(value)
		case "np":
			r.np = nil
			for word := range strings.FieldsSeq(value) {
				n, bad := strconv.Atoi(word)
				r.np, err = append(r.np, n), errors.Join(err, bad)
			}
		case "unlike":
			kinds, reason, _ := strings.Cut(value, " ")
			r.unlike, r.reason = strings.Split(kinds, ","), reason
		case "ranks":
			pattern, err = regexp.Compile(value)
			r.ranks = pattern
		case "result":
			pattern, err = regexp.Compile(value)
			r.result = pattern
		case "varies":
			pattern, err = regexp.Compile(value)
			r.varies = append(r.varies, pattern)
		default:
			return r, fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return r, err
		}
	}
	switch {
	case r.name == "" || r.field == "" || r.run == "" || r.packages == nil || r.ranks == nil || r.result == nil:
		return r, fmt.Errorf("it needs name, field, packages, mpi, run, ranks and result")
	case launchers[r.mpi] == "":
		return r, fmt.Errorf("mpi is %q, expected openmpi or mpich", r.mpi)
	case r.unlike != nil && r.reason == "":
		return r, fmt.Errorf("unlike is %v without a reason", r.unlike)
	}
	return r, nil
}
