package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// Made is a directory of what the tests of a package have built once. Their TestMain removes it.
type Made struct {
	once sync.Once
	dir  string
	err  error
}

// In gives the directory, where build has run. A test whose directory could not be built ends.
func (m *Made) In(t testing.TB, build func(dir string) error) string {
	t.Helper()
	m.once.Do(func() {
		if m.dir, m.err = os.MkdirTemp("", "gorun-made-"); m.err == nil {
			m.err = build(m.dir)
		}
	})
	if m.err != nil {
		t.Fatal(m.err)
	}
	return m.dir
}

// Remove removes it, if there is one.
func (m *Made) Remove() {
	if m.dir != "" {
		_ = os.RemoveAll(m.dir)
	}
}

// Build runs a command. A warning of its is an error.
func Build(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("warning")) {
		err = errors.New("it warns")
	}
	if err != nil {
		return fmt.Errorf("%q: %w\n%s", args, err, out)
	}
	return nil
}
