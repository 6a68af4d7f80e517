package apps

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

const page = "../../docs/applications.md"

var mpiNames = map[string]string{"openmpi": "Open MPI", "mpich": "MPICH"}

// table is the part of the page that make apps writes.
func table(all []row) string {
	var b strings.Builder
	names, comparisons := make(map[string]bool), 0
	b.WriteString("| application | field | version | MPI | command | under gorun |\n|---|---|---|---|---|---|\n")
	for _, r := range all {
		names[r.name] = true
		comparisons += len(r.np)
		under := "alike"
		if r.unlike != nil {
			under = "alike but for " + strings.Join(r.unlike, " and ") + ": " + r.reason
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | %s |\n", r.name, r.field, r.version, mpiNames[r.mpi], strings.ReplaceAll(r.run, "|", `\|`), under)
	}
	fmt.Fprintf(&b, "\n%d applications, %d comparisons.\n", len(names), comparisons)
	return b.String()
}

// TestPageHasTheRows compares the table with the rows, but for the versions, which make apps finds.
func TestPageHasTheRows(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := rows(t)
	for i := range all {
		r := &all[i]
		line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(r.name) + ` \| [^|]* \| ([^|]*) \| ` + mpiNames[r.mpi] + ` \|`)
		if found := line.FindSubmatch(text); found != nil {
			r.version = string(found[1])
		}
	}
	testenv.Page(t, page, "table", table(all), false)
}
