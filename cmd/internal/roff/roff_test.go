package roff

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// What is written is what a reader sees, whatever its characters mean to roff.
func TestPage(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	var p Page
	p.Title("tool", `tool "1.0"`)
	p.Section(`WITH "QUOTES" AND \`)
	p.Text(".so /etc/passwd")
	p.Paragraph("'quoted' `back` a^b ~c \\fBnot bold\\fR -x\ny")
	p.Entry("-n, --np N", ".ranks")
	p.Example(".line 1", "it's -2")
	cmd := exec.CommandContext(t.Context(), testenv.Need(t, "groff"), "-man", "-ww", "-Tutf8", "-rLL=100n", "-P-cbou")
	cmd.Stdin = strings.NewReader(p.String())
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("groff: %v\n%s", err, errs.String())
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"TOOL(1)", `tool "1.0"`, `WITH "QUOTES" AND \`, ".so /etc/passwd", `'quoted' ` + "`back`" + ` a^b ~c \fBnot bold\fR -x y`,
		"-n, --np N .ranks", ".line 1 it's -2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
