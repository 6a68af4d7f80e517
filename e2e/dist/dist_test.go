// Package dist tests what make dist makes.
package dist

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// run runs a command in the project's directory.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(testenv.Deadline(t, 10*time.Minute), args[0], args[1:]...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// read gives a file's bytes.
func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// list gives the names in a directory.
func list(t *testing.T, path ...string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDist(t *testing.T) {
	testenv.Part(t, testenv.Dist)
	for _, tool := range []string{"make", "git", "sha256sum", "dpkg-query", "apt-cache", "rpm", "man", "ssh-keygen", "ip"} {
		testenv.Need(t, tool)
	}
	run(t, "make", "dist")
	made := filepath.Join("..", "..", "bin", "dist")
	if said := run(t, "sh", "-c", "cd bin/dist && sha256sum --check --strict SHA256SUMS"); strings.Count(said, ": OK\n") != 8 {
		t.Errorf("sha256sum says\n%swant 8 files", said)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) { testArchive(t, made, arch) })
	}
	t.Run("again", func(t *testing.T) {
		again := t.TempDir()
		run(t, "env", "TZ=Asia/Tokyo", "GOMAXPROCS=1", "sh", "-c", "umask 077 && scripts/dist "+again+" "+runtime.GOARCH)
		names := list(t, again)
		if len(names) != 5 {
			t.Errorf("found %q, want four files and their sums", names)
		}
		for _, name := range names {
			if name != "SHA256SUMS" && !bytes.Equal(read(t, again, name), read(t, made, name)) {
				t.Errorf("%s has other bytes when it is made again", name)
			}
		}
	})
	t.Run("installed", func(t *testing.T) {
		if os.Getuid() != 0 {
			testenv.Unsupported(t, "needs root, for mounts")
		}
		t.Log(run(t, "scripts/dist-try", "bin/dist"))
	})
}

// testArchive holds the tar archive to cmd, and the SBOM to what the archive's commands say of their builds.
func testArchive(t *testing.T, made, arch string) {
	dir, got, want := t.TempDir(), map[string]bool{}, map[string]bool{}
	run(t, "sh", "-c", "tar -xzf bin/dist/*-linux-"+arch+".tar.gz --strip-components 1 -C "+dir)
	commands := list(t, dir, "bin")
	for _, name := range list(t, "..", "..", "cmd") {
		if name != "internal" && !slices.Contains(commands, name) {
			t.Errorf("the archive has no %s", name)
		}
	}
	for _, name := range commands {
		if name == "gorun-cc" { // a script of sh
			continue
		}
		info, err := buildinfo.ReadFile(filepath.Join(dir, "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		if text := info.String(); !strings.Contains(text, "\tGOARCH="+arch+"\n") {
			t.Errorf("%s is for another architecture:\n%s", name, text)
		}
		for _, m := range info.Deps {
			want["pkg:golang/"+m.Path+"@"+m.Version] = true
		}
		want["pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go")] = true
		want[fmt.Sprintf("bin/%s %x", name, sha256.Sum256(read(t, dir, "bin", name)))] = true
	}
	var bom struct {
		Components []struct {
			Name, Type, PURL string
			Hashes           []struct{ Content string }
		}
	}
	sboms, err := filepath.Glob(filepath.Join(made, "*-linux-"+arch+".cdx.json"))
	if err != nil || len(sboms) != 1 {
		t.Fatalf("found the SBOMs %q, %v", sboms, err)
	}
	if err := json.Unmarshal(read(t, sboms[0]), &bom); err != nil {
		t.Fatal(err)
	}
	for _, c := range bom.Components {
		if c.Type == "file" {
			got[c.Name+" "+c.Hashes[0].Content] = true
		} else {
			got[c.PURL] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the SBOM has %v\nwant %v", got, want)
	}
}
