package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// peers are the launchers whose options are listed in testdata/peers.
var peers = []struct {
	file  string
	under family
}{
	{"standard", hydra}, {"hydra", hydra}, {"intel", hydra}, {"openmpi-4", openMPI}, {"openmpi-5", openMPI}, {"openmpi-6", openMPI},
}

// peerOptions reads a list: how many values each option takes.
func peerOptions(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "peers", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	list := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, arity, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(arity)
		if !ok || err != nil {
			t.Fatalf("%s: %q", file, line)
		}
		list[name] = n
	}
	return list
}

// owed are options of the peers that gorun does not know yet. Whoever adds one
// to the table takes it out here.
var owed = strings.Fields(``)

// otherwise are options that take another number of values here, and why.
var otherwise = map[string]string{
	"openmpi-5 display-topo": "Open MPI 4 has it without a value; --display topo is the one of both",
	"openmpi-6 display-topo": "as openmpi-5",
	"openmpi-6 dvm":          "as openmpi-5",
	"openmpi-5 dvm":          "Open MPI 4 has it without a value; refused in any case",
}

func TestOptionsOfThePeers(t *testing.T) {
	missing := map[string]bool{}
	for _, peer := range peers {
		table := optionsUnder(peer.under)
		for name, arity := range peerOptions(t, peer.file) {
			o := longOption(table, name)
			if o == nil {
				o = shortOption(table, name)
			}
			switch {
			case o == nil:
				missing[name] = true
				if !slices.Contains(owed, name) {
					t.Errorf("%s: -%s is in no line of the table", peer.file, name)
				}
			case o.arity != arity && otherwise[peer.file+" "+name] == "":
				t.Errorf("%s: -%s takes %d values there and %d here", peer.file, name, arity, o.arity)
			}
		}
	}
	for _, name := range owed {
		if !missing[name] && longOption(everyOption(), name) != nil {
			t.Errorf("-%s is in the table: it is owed no more", name)
		}
	}
}

// Open MPI's launcher since 5 takes an option by the begin of its name. gorun takes each begin that is clear there too, or
// says which of its own options it may be short for.
func TestBeginsOfOptions(t *testing.T) {
	theirs, table := peerOptions(t, "openmpi-6"), optionsUnder(openMPI)
	understood := 0
	for name := range theirs {
		for n := 3; n < len(name); n++ {
			begin, clear := name[:n], true
			for other := range theirs {
				clear = clear && (other == name || !strings.HasPrefix(other, begin))
			}
			if !clear || longOption(table, begin) != nil {
				continue
			}
			switch got := shortened(table, begin); {
			case len(got) == 1 && longOption(table, got[0]) == longOption(table, name):
				understood++
			case len(got) < 2 || !slices.Contains(got, name):
				t.Errorf("--%s, for --%s: understood as %q", begin, name, got)
			}
		}
	}
	if understood < 300 {
		t.Errorf("only %d begins of names are understood", understood)
	}
}

// The lists hold what the launchers installed here say of themselves.
func TestListsOfThePeers(t *testing.T) {
	for _, c := range []struct {
		command []string
		files   []string
		option  string // a regular expression
	}{
		{[]string{"mpirun.openmpi", "--allow-run-as-root", "--help", "all"}, []string{"openmpi-4", "openmpi-5", "openmpi-6"}, `(?m)^ {0,3}(-\S+)`},
		{[]string{"mpiexec.mpich", "-help"}, []string{"hydra"}, `(?m)^ {4}(-[a-z][\w/-]*)`},
	} {
		if v := testenv.Version(t, c.command[0]); c.files[0] == "openmpi-4" && !strings.HasPrefix(v, "4.") {
			t.Logf("%s %s lists no options in its help", c.command[0], v)
			continue
		}
		// Both exit with what they like after help.
		text, _ := exec.CommandContext(t.Context(), c.command[0], c.command[1:]...).CombinedOutput()
		n := 0
		for _, match := range regexp.MustCompile(c.option).FindAllStringSubmatch(string(text), -1) {
			for name := range strings.FieldsFuncSeq(match[1], func(r rune) bool { return r == '|' || r == '/' }) {
				n++
				name = strings.TrimLeft(name, "-")
				if name != "" && !slices.ContainsFunc(c.files, func(file string) bool { _, ok := peerOptions(t, file)[name]; return ok }) {
					t.Errorf("%s has -%s, which is in none of the lists %q", c.command[0], name, c.files)
				}
			}
		}
		if n < 40 {
			t.Errorf("%s: found only %d options in its help:\n%s", c.command[0], n, text)
		}
	}
}

var update = flag.Bool("update", false, "write the tables of docs anew")

// TestOptionsPage holds the table in docs/options.md to the one in the code.
func TestOptionsPage(t *testing.T) {
	testenv.Page(t, filepath.Join("..", "..", "docs", "options.md"), "options", optionsPage(t), *update)
}

// TestEnvironmentPage holds the table in docs/environment.md to the one in the code.
func TestEnvironmentPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("| variable | as the option | meaning |\n|---|---|---|\n")
	for _, v := range variables() {
		if v.help == "" { // a second line of the same variable
			continue
		}
		option := "-"
		if v.option != "" {
			option = "`--" + v.option + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(v.name, ", ", "`, `"), option, v.help)
	}
	testenv.Page(t, filepath.Join("..", "..", "docs", "environment.md"), "variables", b.String(), *update)
}

// TestParametersPage holds the table of Open MPI's parameters to the one in the code.
func TestParametersPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("| option | parameters |\n|---|---|\n")
	names, order := map[string]string{}, []string{}
	for _, p := range standIns {
		if names[p.option] == "" {
			order = append(order, p.option)
		}
		names[p.option] += " `" + p.name + "`"
	}
	for _, option := range order {
		fmt.Fprintf(&b, "| `--%s` |%s |\n", option, names[option])
	}
	testenv.Page(t, filepath.Join("..", "..", "docs", "options.md"), "parameters", b.String(), *update)
}

func optionsPage(t *testing.T) string {
	lists := map[family][]string{}
	for _, peer := range peers {
		for name := range peerOptions(t, peer.file) {
			lists[peer.under] = append(lists[peer.under], name)
		}
	}
	theirs := func(o *option, under family) string {
		if o.under != 0 && o.under&under == 0 {
			return ""
		}
		var names []string
		for _, name := range o.allNames() {
			if slices.Contains(lists[under], name) {
				names = append(names, "`-"+name+"`")
			}
		}
		return strings.Join(names, " ")
	}
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	var b strings.Builder
	b.WriteString("| gorun | mpirun (Open MPI 4, 5) | Hydra (MPICH, Intel), standard | what it does here |\n|---|---|---|---|\n")
	table := everyOption()
	for _, f := range families {
		for i := range table {
			o := &table[i]
			if o.family != f.name {
				continue
			}
			name := "`" + shown(o, o.names[0]) + "`"
			if o.value != "" {
				name = "`" + shown(o, o.names[0]) + " " + o.value + "`"
			}
			if o.under == hydra {
				name += " (as mpiexec)"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(name), cmp.Or(theirs(o, openMPI), "-"), cmp.Or(theirs(o, hydra), "-"), cell(o.help))
		}
	}
	for _, f := range []fate{noted, refused} {
		for i := range table {
			o := &table[i]
			if o.fate != f {
				continue
			}
			word := map[fate]string{noted: "no effect: ", refused: "**refused**: "}[f]
			mpirun, hydras := theirs(o, openMPI), theirs(o, hydra)
			if mpirun == "" && hydras == "" { // of older versions
				hydras = "`-" + strings.Join(o.allNames(), "` `-") + "`"
			}
			fmt.Fprintf(&b, "| - | %s | %s | %s%s |\n", cmp.Or(mpirun, "-"), cmp.Or(hydras, "-"), word, cell(o.reason))
		}
	}
	return b.String()
}
