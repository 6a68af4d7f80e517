package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestCommandLines(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"--help", 0, "Usage:"}, {"-V", 0, "gorun-verbs"}, {"--man", 0, ".TH"}, {"--completion fish", 0, "fish"},
		{"", 2, "found no program"}, {"--completion tcsh", 2, `found "tcsh"`}, {"--devise a b", 2, "did you mean --device?"},
		{"-x", 2, "there is no option"}, {"--device a,,b true", 2, "separated by commas"},
		{"--adverse x true", 2, `--adverse: found "x"`}, {"--adverse= true", 2, "--adverse: found nothing"}, {"-a 7,bad true", 2, `found "bad"`},
		{"true", 2, "make build makes it"}, // beside a test there is no library
	} {
		var out, errs strings.Builder
		never := func(string, []string, []string) error { t.Errorf("%q: ran", c.args); return errors.New("no") }
		if got := run(strings.Fields(c.args), nil, &out, &errs, never); got != c.status || !strings.Contains(out.String()+errs.String(), c.says) {
			t.Errorf("%q: status %d, %s%s; want %d and %q", c.args, got, out.String(), errs.String(), c.status, c.says)
		}
	}
}

func TestProgramGetsItsOptionsAndTheLibrary(t *testing.T) {
	r, err := parse(strings.Fields("-d mlx5_0,mlx5_1 --fabric ci ib_write_bw -d mlx5_1 --help"))
	if err != nil || strings.Join(r.command, " ") != "ib_write_bw -d mlx5_1 --help" {
		t.Fatalf("got %+v, %v", r, err)
	}
	got := r.environment([]string{"PATH=/bin", "LD_LIBRARY_PATH=/opt", "LD_PRELOAD=/lib/mine.so", "ASAN_OPTIONS=color=never", "GORUN_VERBS_FABRIC=other"}, "/lib/verbs")
	want := []string{"ASAN_OPTIONS=verify_asan_link_order=0:color=never", "GORUN_VERBS_DEVICES=mlx5_0,mlx5_1", "GORUN_VERBS_FABRIC=ci", "LD_LIBRARY_PATH=/lib/verbs:/opt",
		"LD_PRELOAD=/lib/verbs/libgorun-verbs-paths.so:/lib/mine.so", "PATH=/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for args, want := range map[string]string{"-c p": "GORUN_VERBS_CHECK=report", "-c --check-abort p": "GORUN_VERBS_CHECK=abort", "-a 7,link p": "GORUN_VERBS_ADVERSE=7,link"} {
		if r, err := parse(strings.Fields(args)); err != nil || !slices.Equal(r.environment(nil, "/a b"), []string{want, "LD_LIBRARY_PATH=/a b"}) {
			t.Errorf("%s: got %v, %v", args, r, err)
		}
	}
}

func TestHelpAndCompletionNameEveryOption(t *testing.T) {
	for _, o := range options() {
		for what, text := range map[string]string{"help": help(), "bash": completion("bash"), "zsh": completion("zsh"), "fish": completion("fish"), "manual": manual()} {
			if !strings.Contains(strings.ReplaceAll(text, `\-`, "-"), o.long) {
				t.Errorf("%s has no %s", what, o.long)
			}
		}
	}
}

// compiled is a program, or a library, of the C source.
func compiled(t *testing.T, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	c := filepath.Join(dir, "source.c")
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.Need(t, "gcc"), append([]string{"-o", filepath.Join(dir, name), c}, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return filepath.Join(dir, name)
}

func TestProgramsThatDoNotFitAreNamed(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	versions := func(node string) string {
		file := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(file, []byte(node+" { global: ibv_f; };"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "-Wl,--version-script=" + file
	}
	const library, program = "void ibv_f(void) {}", "void ibv_f(void); int main(void) { ibv_f(); return 0; }"
	own := compiled(t, libraryName, library, "-shared", "-fPIC", "-Wl,-soname,"+libraryName, versions("IBVERBS_1.1"))
	other := compiled(t, libraryName, library, "-shared", "-fPIC", "-Wl,-soname,"+libraryName, versions("IBVERBS_PRIVATE_99"))
	for _, c := range []struct{ program, says string }{
		{compiled(t, "fits", program, own), ""},
		{compiled(t, "other", program, other), "needs IBVERBS_PRIVATE_99"},
		{compiled(t, "static", "int main(void) { return 0; }", "-static"), "is a static program"},
		{compiled(t, "musl", "int main(void) { return 0; }", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"), "for musl"},
	} {
		if err := fits(c.program, own); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", filepath.Base(c.program), err, c.says)
		}
	}
}

func TestManualRenders(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	cmd := exec.CommandContext(t.Context(), testenv.Need(t, "groff"), "-man", "-ww", "-Tutf8", "-P-cbou")
	cmd.Stdin = strings.NewReader(manual())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "SYNOPSIS") {
		t.Errorf("groff -man -ww: %v\n%s", err, out)
	}
}
