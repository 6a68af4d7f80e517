package main

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A function is a line of functions.txt.
type function struct {
	name   string // without MPI_
	state  string // go, c, both, -
	large  bool   // there is a _c form
	result string
	params []param
	more   bool // ... follows
}

type param struct{ name, kind string }

// kinds has the C types of a kind, in the plain form and in _c, and how Go takes it.
var kinds = map[string]struct{ small, large, decoder string }{
	"INT": {"int", "", "int"}, "COUNT": {"int", "MPI_Count", "int"}, "UNIT": {"int", "MPI_Aint", "int"}, "AINT": {"MPI_Aint", "", "int"},
	"ADDR": {"MPI_Aint", "MPI_Count", "int"}, "OFFSET": {"MPI_Offset", "", "int"}, "LONG": {"MPI_Count", "", "int"},
	"INT*": {"int *", "", "ptr"}, "COUNT*": {"int *", "MPI_Count *", "ptr"}, "UNIT*": {"int *", "MPI_Aint *", "ptr"}, "AINT*": {"MPI_Aint *", "", "ptr"},
	"ADDR*": {"MPI_Aint *", "MPI_Count *", "ptr"}, "OFFSET*": {"MPI_Offset *", "", "ptr"}, "LONG*": {"MPI_Count *", "", "ptr"},
	"INTS": {"const int []", "", "ptr"}, "INTS*": {"int []", "", "ptr"}, "TRIPLES": {"int [][3]", "", "ptr"}, "LONGS*": {"MPI_Count []", "", "ptr"},
	"COUNTS": {"const int []", "const MPI_Count []", "ptr"}, "DISPLS": {"const int []", "const MPI_Aint []", "ptr"},
	"AINTS": {"const MPI_Aint []", "", "ptr"}, "ADDRS": {"const MPI_Aint []", "const MPI_Count []", "ptr"}, "AINTS*": {"MPI_Aint []", "", "ptr"},
	"IN": {"const void *", "", "ptr"}, "BUF": {"void *", "", "ptr"}, "STR": {"const char *", "", "ptr"}, "STR*": {"char *", "", "ptr"},
	"STRS": {"char *[]", "", "ptr"}, "STRSS": {"char **[]", "", "ptr"}, "ARGV": {"char ***", "", "ptr"},
	"STATUS": {"const MPI_Status *", "", "ptr"}, "STATUS*": {"MPI_Status *", "", "ptr"},
	"FUNCTION":   {"MPI_User_function *", "MPI_User_function_c *", "ptr"},
	"CONVERSION": {"MPI_Datarep_conversion_function *", "MPI_Datarep_conversion_function_c *", "ptr"},
	"IN=":        {"const void *", "", "ptr"}, "BUF=": {"void *", "", "ptr"},
	"TYPE?": {"MPI_Datatype", "", "lazyType"},
	"COMM?": {"MPI_Comm", "", "word"},     // nor is this
	"TYPE=": {"MPI_Datatype", "", "word"}, // may be null
	"WIN=":  {"MPI_Win", "", "word"},
	"FILE=": {"MPI_File", "", "word"},
}

// handles have kinds for themselves, a pointer to one, a list that is read, and one that is written.
var handles = map[string]struct{ c, decoder string }{
	"COMM": {"MPI_Comm", "comm"}, "TYPE": {"MPI_Datatype", "datatype"}, "OP": {"MPI_Op", "op"}, "GROUP": {"MPI_Group", "group"}, "INFO": {"MPI_Info", "info"},
	"ERRHANDLER": {"MPI_Errhandler", "errhandler"}, "REQUEST": {"MPI_Request", "request"}, "MESSAGE": {"MPI_Message", "int"}, "WIN": {"MPI_Win", "win"},
	"FILE": {"MPI_File", "file"}, "SESSION": {"MPI_Session", "session"},
}

// enums are kinds of an int, with * of a pointer to one and with S of a list, among whose values are these constants, or those that begin so.
var enums = map[string]string{
	"RANK": "MPI_ANY_SOURCE MPI_PROC_NULL MPI_ROOT", "TAG": "MPI_ANY_TAG", "CODE": "MPI_ERR_ MPI_T_ERR_",
	"KEYVAL": "MPI_KEYVAL_INVALID MPI_TAG_UB MPI_IO MPI_HOST MPI_WTIME_IS_GLOBAL MPI_APPNUM MPI_LASTUSEDCODE MPI_UNIVERSE_SIZE MPI_WIN_BASE MPI_WIN_DISP_UNIT MPI_WIN_SIZE MPI_WIN_CREATE_FLAVOR MPI_WIN_MODEL",
	"LOCK":   "MPI_LOCK_", "LEVEL": "MPI_THREAD_", "WHENCE": "MPI_SEEK_", "ORDER": "MPI_ORDER_", "SPLIT": "MPI_COMM_TYPE_", "COMBINER": "MPI_COMBINER_", "TYPECLASS": "MPI_TYPECLASS_",
	"COMPARISON": "MPI_IDENT MPI_CONGRUENT MPI_SIMILAR MPI_UNEQUAL", "TOPOLOGY": "MPI_CART MPI_GRAPH MPI_DIST_GRAPH",
	"DISTRIB": "MPI_DISTRIBUTE_NONE MPI_DISTRIBUTE_BLOCK MPI_DISTRIBUTE_CYCLIC", "DARG": "MPI_DISTRIBUTE_DFLT_DARG",
	"AMODE":  "MPI_MODE_APPEND MPI_MODE_CREATE MPI_MODE_DELETE_ON_CLOSE MPI_MODE_EXCL MPI_MODE_RDONLY MPI_MODE_RDWR MPI_MODE_SEQUENTIAL MPI_MODE_UNIQUE_OPEN MPI_MODE_WRONLY",
	"ASSERT": "MPI_MODE_NOCHECK MPI_MODE_NOPRECEDE MPI_MODE_NOPUT MPI_MODE_NOSTORE MPI_MODE_NOSUCCEED",
}

// enum is the name of an enumeration in a kind, with what follows it; "" for none.
func (p param) enum() (name, suffix string) {
	for _, suffix := range []string{"", "*", "S", "S*"} {
		if name, ok := strings.CutSuffix(p.kind, suffix); ok && enums[name] != "" {
			return name, suffix
		}
	}
	return "", ""
}

// plain is the kind of a parameter as the type sees it.
func (p param) plain() string {
	if name, suffix := p.enum(); name != "" {
		return "INT" + suffix
	} else if p.kind == "DISPLACEMENT" {
		return "OFFSET"
	}
	return p.kind
}

// ctype is the C type of a parameter with the place of its name: "const int %s[]".
func (p param) ctype(large bool) string {
	p.kind = p.plain()
	t := p.kind
	if k, ok := kinds[p.kind]; ok {
		if t = k.small; large && k.large != "" {
			t = k.large
		}
	} else if h, ok := handles[strings.TrimSuffix(strings.TrimSuffix(p.kind, "*"), "S")]; ok {
		switch t = h.c; {
		case strings.HasSuffix(p.kind, "S*"):
			t += " []"
		case strings.HasSuffix(p.kind, "*"):
			t += " *"
		case strings.HasSuffix(p.kind, "S"):
			t = "const " + t + " []"
		}
	} else if strings.HasSuffix(t, "*") {
		t = strings.TrimSuffix(t, "*") + " *"
	}
	if before, after, ok := strings.Cut(t, "["); ok {
		return before + "%s[" + after
	}
	if strings.HasSuffix(t, "*") {
		return t + "%s"
	}
	return t + " %s"
}

// decoder is the method of a frame that gives the parameter.
func (p param) decoder() string {
	if k, ok := kinds[p.plain()]; ok {
		return k.decoder
	}
	if h, ok := handles[p.kind]; ok {
		return h.decoder
	}
	return "ptr"
}

// prototype is the head of a C function.
func (f function) prototype(prefix string, large bool, name string) string {
	list := []string{}
	for _, p := range f.params {
		list = append(list, fmt.Sprintf(p.ctype(large), p.name))
	}
	if f.more {
		list = append(list, "...")
	}
	if len(list) == 0 {
		list = []string{"void"}
	}
	return fmt.Sprintf("%s %s%s(%s)", f.result, prefix, name, strings.Join(list, ", "))
}

// goName is the function in the library: mpiTypeCreateStruct.
func (f function) goName() string {
	name := "mpi"
	for _, part := range strings.Split(f.name, "_") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// formOf tells which function's form a function is: Ibcast starts what Bcast does, and Bcast_init keeps it, with an MPI_Info
// or nothing, and the request, behind the same parameters. Bcast of the library asks for the form.
func (f function) formOf(all map[string]function) (base function, form string) {
	if plain, ok := strings.CutSuffix(f.name, "_init"); ok {
		base, form = all[plain], "keeps"
	} else if plain, ok := strings.CutPrefix(f.name, "I"); ok {
		base, form = all[strings.ToUpper(plain[:1])+plain[1:]], "starts"
	}
	n := len(base.params)
	if n == 0 || len(f.params) <= n || !slices.Equal(f.params[:n], base.params) || f.params[len(f.params)-1].kind != "REQUEST*" {
		return f, ""
	}
	return base, form
}

// forms calls do for each of a function's forms.
func (f function) forms(do func(name string, large bool)) {
	do(f.name, false)
	if f.large {
		do(f.name+"_c", true)
	}
}

// lines are the fields of a table's lines that are no comments.
func lines(text []byte) (list [][]string) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 0 && s.Text()[0] != '#' {
			list = append(list, fields)
		}
	}
	return list
}

func parseFunctions(text []byte) (list []function, err error) {
	for _, l := range lines(text) {
		if len(l) < 4 || !strings.Contains(" go c both - ", " "+l[1]+" ") || l[2] != "_c" && l[2] != "." {
			return nil, fmt.Errorf("functions.txt: %q: expected a name, a state, the forms, the result and parameters", strings.Join(l, " "))
		}
		f := function{name: l[0], state: l[1], large: l[2] == "_c", result: l[3]}
		for _, p := range l[4:] {
			name, kind, ok := strings.Cut(p, ":")
			if f.more = p == "..."; f.more {
				break
			}
			if !ok {
				return nil, fmt.Errorf("functions.txt: %s: %q: expected name:KIND", f.name, p)
			}
			f.params = append(f.params, param{name, kind})
		}
		list = append(list, f)
	}
	return list, nil
}
