package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Programs of other MPIs load the recorder before what the user has them load, where there is one.
func TestRecorder(t *testing.T) {
	library := filepath.Join(t.TempDir(), ProfileLibrary)
	if _, lacks := findRecorder(library); !strings.Contains(lacks, "no "+library+"; make build") {
		t.Errorf("says %q of a library that is not there", lacks)
	}
	if _, lacks := findRecorder(""); !strings.Contains(lacks, "lib/gorun/profile/"+ProfileLibrary) {
		t.Errorf("says %q of one that is not beside this program", lacks)
	}
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path, lacks := findRecorder(library)
	if path != library || lacks != "" {
		t.Fatalf("found %q, %q", path, lacks)
	}
	spec := &Spec{NP: 1, Ranks: []RankSpec{{}}, Apps: []AppSpec{{NP: 1, Argv: []string{"p"}, Env: []string{"LD_PRELOAD=/a.so:/b.so"}}}, Profile: 1}
	dir := t.TempDir()
	env := newEnvironment(spec, surroundings{cpus: 1, dir: dir, files: dir, ports: []string{""}, alone: []bool{false}, cgo: []bool{false}, recorder: path}).of(0)
	if want := "LD_PRELOAD=" + library + ":/a.so:/b.so"; !slices.Contains(env, want) {
		t.Errorf("no %s in %q", want, env)
	}
}
