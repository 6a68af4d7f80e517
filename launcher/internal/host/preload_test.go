package host

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program comes in pieces, is checked, and is executable; what comes wrong is said.
func TestFetchPrograms(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	text := []byte("#!/bin/sh\n" + strings.Repeat("# a long script\n", 1000))
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := PreloadOf(f)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	whole := func(_ int, at int64) ([]byte, error) {
		asked++
		return text[at:min(int(at)+1000, len(text))], nil
	}
	for _, c := range []struct {
		name  string
		as    Preload
		fetch func(app int, at int64) ([]byte, error)
		want  string // in the error; "": it comes
	}{
		{"in pieces", *p, whole, ""},
		{"another file meanwhile", *p, func(_ int, at int64) ([]byte, error) {
			return bytes.ToUpper(text[at:min(int(at)+1000, len(text))]), nil
		}, "has the file of the program changed"},
		{"more than there is", *p, func(int, int64) ([]byte, error) { return append(text, 'x'), nil }, "expected one of the rest"},
		{"nothing", *p, func(int, int64) ([]byte, error) { return nil, nil }, "found a piece of 0 bytes"},
		{"an error there", *p, func(int, int64) ([]byte, error) { return nil, errors.New("input/output error") }, "input/output error"},
		{"the job ends", *p, func(int, int64) ([]byte, error) { return nil, ErrNotWanted }, ErrNotWanted.Error()},
		{"a name that leads elsewhere", Preload{Name: "../program", Size: p.Size, Hash: p.Hash}, whole, "expected that of a file"},
		{"nobody sends it", *p, nil, "somebody to send it"},
	} {
		h := assemble(Spec{}, Config{Fetch: c.fetch})
		h.rankDir = t.TempDir()
		h.spec = Spec{Host: "h2", Apps: []AppSpec{{Argv: []string{"./program"}, Preload: &c.as}, {}, {Argv: []string{"program"}, Preload: &c.as}}, Ranks: []RankSpec{{Rank: 0}, {Rank: 1, App: 2}}}
		asked = 0
		err := h.starter.fetchPrograms()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			continue
		}
		files, lookErr := h.starter.programs()
		if err != nil || lookErr != nil || files[0] != files[2] || filepath.Base(files[0]) != "program" || asked != (len(text)+999)/1000 {
			t.Fatalf("%s: got %v, %v, files %q in %d pieces", c.name, err, lookErr, files, asked)
		}
		if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, text) || executable(files[0]) != nil {
			t.Errorf("%s: %d bytes of %d, %v", c.name, len(got), len(text), err)
		}
	}
}
