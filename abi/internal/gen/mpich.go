package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A twin is a constant in both ABIs.
type twin struct {
	name, kind   string
	ours, theirs int64 // in the standard ABI, and in MPICH's
}

// tablesOfMPICH are the constants of MPICH's own ABI, in the order of mpich.txt.
func tablesOfMPICH(constants [][]string) (list []twin, err error) {
	text, err := os.ReadFile("mpich.txt")
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, c := range constants {
		all[c[0]] = c
	}
	for _, l := range lines(text) {
		c := all[l[0]]
		if len(l) != 2 || c == nil {
			return nil, fmt.Errorf("mpich.txt: %q: expected a name of constants.txt, and a value", strings.Join(l, " "))
		}
		t := twin{name: c[0], kind: c[1]}
		if t.ours, err = strconv.ParseInt(c[2], 0, 64); err == nil {
			t.theirs, err = strconv.ParseInt(l[1], 0, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("mpich.txt: %s: %w", t.name, err)
		}
		if strings.HasPrefix(t.kind, "MPI_") || strings.HasPrefix(l[1], "0x") {
			t.theirs = int64(int32(t.theirs)) // a handle, which is an int
		}
		list = append(list, t)
	}
	return list, nil
}

// of are the constants of an enumeration.
func of(mpich []twin, enum string) (list []twin) {
	for prefix := range strings.FieldsSeq(enums[enum]) {
		for _, t := range mpich {
			if t.name == prefix || strings.HasSuffix(prefix, "_") && strings.HasPrefix(t.name, prefix) {
				list = append(list, t)
			}
		}
	}
	return list
}

// flags are the enumerations whose constants are or-ed.
var flags = []string{"AMODE", "ASSERT"}

// foreign is libmpich.so.12: each function with MPICH's types, which calls the one of the standard ABI. What it needs besides is in mpich/words.h.
func foreign(functions []function, mpich []twin) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n// One unit with the functions of the standard ABI.\n#include \"words.h\"\n\n", strings.Replace(notice, " and constants.txt", ", constants.txt and mpich.txt", 1))
	b.WriteString("static const int theirs[HANDLES] = {\n")
	for _, t := range mpich {
		if strings.HasPrefix(t.kind, "MPI_") && t.kind != "MPI_Offset" {
			fmt.Fprintf(&b, "\t[%s] = %d,\n", at(t.ours), t.theirs)
		}
	}
	b.WriteString("};\n\nstatic const struct {\n\tint theirs, ours;\n} types[256] = {\n")
	for _, t := range mpich {
		if t.kind == "MPI_Datatype" {
			fmt.Fprintf(&b, "\t[TYPE_AT(%d)] = {%d, %s},\n", t.theirs, t.theirs, at(t.ours))
		}
	}
	b.WriteString("};\n\n")
	for _, kind := range slices.Sorted(maps.Keys(handles)) {
		if kind == "TYPE" || kind == "FILE" {
			continue
		}
		fmt.Fprintf(&b, "static %s our_%s(int v) {\n\tswitch (v) {\n", handles[kind].c, kind)
		for _, t := range mpich {
			if t.kind == handles[kind].c {
				fmt.Fprintf(&b, "\tcase %d: return (%s)%s;\n", t.theirs, t.kind, at(t.ours))
			}
		}
		fmt.Fprintf(&b, "\t}\n\treturn (%s)made(v);\n}\n", handles[kind].c)
	}
	for _, enum := range slices.Sorted(maps.Keys(enums)) {
		list := of(mpich, enum)
		write := values
		if slices.Contains(flags, enum) {
			write = flagged
		}
		write(&b, "our", enum, list)
		for i, t := range list {
			list[i].ours, list[i].theirs = t.theirs, t.ours
		}
		write(&b, "their", enum, list)
	}
	b.WriteString("\n")
	for _, f := range functions {
		if f.more || strings.HasSuffix(f.name, "_fromint") || strings.HasSuffix(f.name, "_toint") || f.name == "Get_processor_name" {
			continue // they are in mpich/beside.c
		}
		f.forms(func(name string, large bool) { f.foreign(&b, name, large) })
	}
	b.WriteString("#include \"beside.c\"\n#include \"fortran.c\"\n")
	return b.Bytes()
}

func at(ours int64) string { return fmt.Sprintf("%#x", ours) }

// values is the function that gives a constant's value in the ABI to. A value of that ABI which is none in the other stands for nothing.
func values(b *bytes.Buffer, to, enum string, list []twin) {
	fmt.Fprintf(b, "static inline int %s_%s(int v) {\n\tswitch (v) {\n", to, enum)
	is := map[int64]bool{}
	for _, t := range list {
		fmt.Fprintf(b, "\tcase %d: return %d;\n", t.theirs, t.ours)
		is[t.theirs] = true
	}
	rest := "v"
	if enum == "CODE" {
		rest = to + "_code(v)" // of mpich/words.h
	} else if to == "our" {
		for _, t := range list {
			if !is[t.ours] {
				is[t.ours] = true
				fmt.Fprintf(b, "\tcase %d: return NOTHING;\n", t.ours)
			}
		}
	}
	fmt.Fprintf(b, "\t}\n\treturn %s;\n}\n", rest)
}

// flagged is values for constants that are or-ed. Bits that are none stand for one that is an error.
func flagged(b *bytes.Buffer, to, enum string, list []twin) {
	all := int64(0)
	fmt.Fprintf(b, "static inline int %s_%s(int v) {\n\treturn ", to, enum)
	for _, t := range list {
		all |= t.theirs
		fmt.Fprintf(b, "(v & %d ? %d : 0) | ", t.theirs, t.ours)
	}
	fmt.Fprintf(b, "(v & ~%d ? 1 << 30 : 0);\n}\n", all)
}

// length is how long a list is, in C over the function's parameters.
func (f function) length(p param) string {
	of := func(names ...string) string {
		for _, q := range f.params {
			if slices.Contains(names, q.name) {
				return q.name
			}
		}
		return "0"
	}
	neighbours := strings.Contains(f.name, "eighbor")
	switch p.name {
	case "array_of_requests", "array_of_statuses":
		return of("count", "incount")
	case "array_of_types":
		return "count"
	case "array_of_datatypes":
		return of("max_datatypes") // none of MPI_T_event_get_info, which finds no event
	case "ranks1", "ranks2":
		return "n"
	case "array_of_distribs", "array_of_dargs":
		return "ndims"
	case "sendtypes":
		if neighbours {
			return "neighbours(comm, 1)"
		}
		return "sendbuf == IN_PLACE ? -1 : peers(comm)"
	case "recvtypes":
		if neighbours {
			return "neighbours(comm, 0)"
		}
		return "peers(comm)"
	case "array_of_info":
		return "count"
	}
	panic(f.name + ": how long is " + p.name + "?")
}

// after is what else is to be done after a call that went well.
var after = map[string]string{
	"Comm_detach_buffer": "detached(buffer_addr);", "Comm_detach_buffer_c": "detached(buffer_addr);",
	"Session_detach_buffer": "detached(buffer_addr);", "Session_detach_buffer_c": "detached(buffer_addr);",
	"Comm_create_keyval": "plain_keyval(*comm_keyval);", "Keyval_create": "plain_keyval(*keyval);", "Type_create_keyval": "plain_keyval(*type_keyval);", "Win_create_keyval": "plain_keyval(*win_keyval);",
	"Comm_get_attr":       "value_of_comm(comm_keyval, attribute_val, *flag);",
	"Attr_get":            "value_of_comm(keyval, attribute_val, *flag);",
	"Win_get_attr":        "value_of_win(win_keyval, attribute_val, *flag);",
	"Type_get_contents":   "contents(datatype, array_of_integers);",
	"Type_get_contents_c": "contents(datatype, array_of_integers);",
}

// foreign writes one function of MPICH's ABI.
func (f function) foreign(b *bytes.Buffer, name string, large bool) {
	heads, args := []string{}, []string{}
	var before, behind strings.Builder
	for _, p := range f.params {
		head, arg, pre, post := f.translate(p, large)
		heads = append(heads, fmt.Sprintf(head, p.name))
		args = append(args, arg)
		before.WriteString(pre)
		behind.WriteString(post)
	}
	if len(heads) == 0 {
		heads = []string{"void"}
	}
	fmt.Fprintf(b, "THEIR(%s, %s, (%s)) {\n%s", f.result, name, strings.Join(heads, ", "), before.String())
	call := fmt.Sprintf("PMPI(%s)(%s)", name, strings.Join(args, ", "))
	switch {
	case f.result != "int":
		fmt.Fprintf(b, "\treturn %s;\n}\n", call)
	case behind.Len() == 0 && after[name] == "":
		fmt.Fprintf(b, "\treturn their_CODE(%s);\n}\n", call)
	default:
		fmt.Fprintf(b, "\tint code = %s;\n%s", call, behind.String())
		if after[name] != "" {
			fmt.Fprintf(b, "\tif (code == MPI_SUCCESS)\n\t\t%s\n", after[name])
		}
		b.WriteString("\treturn their_CODE(code);\n}\n")
	}
}

// translate gives a parameter in MPICH's ABI, the argument that it becomes, and what is to be done before and after the call.
func (f function) translate(p param, large bool) (head, arg, before, after string) {
	n := p.name
	if enum, suffix := p.enum(); enum != "" {
		head = p.ctype(large)
		switch suffix {
		case "":
			return head, fmt.Sprintf("our_%s(%s)", enum, n), "", ""
		case "*":
			return head, fmt.Sprintf("%s ? &%s_ : NULL", n, n), fmt.Sprintf("\tint %s_ = %s ? our_%s(*%s) : 0;\n", n, n, enum, n), fmt.Sprintf("\tif (%s)\n\t\t*%s = their_%s(%s_);\n", n, n, enum, n)
		}
		before, after = f.list("int", p, "our_"+enum, map[bool]string{true: "their_" + enum}[suffix == "S*"])
		return head, n + "_", before, after
	}
	base := strings.TrimRight(p.kind, "?=")
	single := strings.TrimSuffix(strings.TrimSuffix(base, "*"), "S")
	if h, ok := handles[single]; ok {
		theirs, own := "int", "our_"+single
		back := "their_handle"
		if single == "FILE" {
			theirs, back = "void *", "their_FILE"
		}
		switch suffix := base[len(single):]; suffix {
		case "":
			return theirs + " %s", fmt.Sprintf("%s(%s)", own, n), "", ""
		case "*":
			return theirs + " *%s", fmt.Sprintf("%s ? &%s_ : NULL", n, n), fmt.Sprintf("\t%s %s_ = %s ? %s(*%s) : NULL;\n", h.c, n, n, own, n), fmt.Sprintf("\tif (%s)\n\t\t*%s = %s(%s_);\n", n, n, back, n)
		case "S":
			before, after = f.list(h.c, p, own, "")
			return "const int %s[]", n + "_", before, after
		default:
			before, after = f.list(h.c, p, own, back)
			return "int %s[]", n + "_", before, after
		}
	}
	switch p.kind {
	case "STATUS":
		return "const struct status *%s", n + " ? &" + n + "_ : NULL", fmt.Sprintf("\tMPI_Status %s_;\n\tif (%s)\n\t\tour_status(&%s_, %s);\n", n, n, n, n), ""
	case "STATUS*":
		if n == "array_of_statuses" {
			length := f.length(p)
			return "struct status *%s", n + "_", fmt.Sprintf("\tLIST(MPI_Status, %s, real(%s) ? %s : -1);\n\tfor (long i = 0; i < %s_n; i++)\n\t\tour_status(&%s_[i], &%s[i]);\n", n, n, length, n, n, n),
				fmt.Sprintf("\tfor (long i = 0; i < %s_n; i++)\n\t\ttheir_status(&%s[i], &%s_[i]);\n\tDONE(%s);\n", n, n, n, n)
		}
		return "struct status *%s", fmt.Sprintf("real(%s) ? &%s_ : NULL", n, n), fmt.Sprintf("\tMPI_Status %s_;\n\tif (real(%s))\n\t\tour_status(&%s_, %s);\n", n, n, n, n), fmt.Sprintf("\tif (real(%s))\n\t\ttheir_status(%s, &%s_);\n", n, n, n)
	case "IN=", "BUF=":
		return p.ctype(large), "in_place(" + n + ")", "", ""
	case "BUF":
		if strings.HasSuffix(f.name, "_attach_buffer") {
			return p.ctype(large), n + " == AUTOMATIC ? MPI_BUFFER_AUTOMATIC : " + n, "", ""
		}
	case "DISPLACEMENT":
		return p.ctype(large), n + " == DISPLACEMENT_CURRENT ? MPI_DISPLACEMENT_CURRENT : " + n, "", ""
	}
	if t := p.ctype(large); strings.Contains(t, "function") {
		if strings.Contains(t, "opy_") || strings.Contains(t, "Copy_") {
			return "void *%s", fmt.Sprintf("(%s)our_copy(%s)", strings.TrimSuffix(t, "%s"), n), "", ""
		}
		if strings.HasPrefix(p.kind, "MPI_T_") {
			return t, n, "", ""
		}
		return "void *%s", fmt.Sprintf("(%s)%s", strings.TrimSuffix(t, "%s"), n), "", ""
	}
	return p.ctype(large), n, "", ""
}

// list has a parameter's list in our terms, and theirs after the call where that has back.
func (f function) list(ctype string, p param, own, back string) (before, after string) {
	before = fmt.Sprintf("\tLIST(%s, %s, %s);\n\tfor (long i = 0; i < %s_n; i++)\n\t\t%s_[i] = %s(%s[i]);\n", ctype, p.name, f.length(p), p.name, p.name, own, p.name)
	if back != "" {
		after = fmt.Sprintf("\tfor (long i = 0; i < %s_n; i++)\n\t\t%s[i] = %s(%s_[i]);\n", p.name, p.name, back, p.name)
	}
	return before, after + fmt.Sprintf("\tDONE(%s);\n", p.name)
}
