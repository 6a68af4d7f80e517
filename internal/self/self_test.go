package self

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestCalled(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/nowhere:"+dir)
	t.Chdir(dir)
	unknown := errors.New("no /proc")
	for name, want := range map[string]string{"program": program, "./program": program, program: program, "../" + filepath.Base(dir) + "/program": program, "gone": "", "": ""} {
		got, err := called([]string{name}, unknown)
		if got != want || want == "" && !errors.Is(err, unknown) {
			t.Errorf("called as %q: got %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := called(nil, unknown); err != unknown {
		t.Errorf("without a name: got %v", err)
	}
}
