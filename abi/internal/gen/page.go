package main

import (
	"fmt"
	"sort"
	"strings"
)

// areas sorts functions by the beginning of their names, the first that fits; the last takes the rest.
var areas = []struct {
	name     string
	prefixes []string
}{
	{"windows", []string{"Win_", "Put", "Rput", "Get_accumulate", "Rget_accumulate", "Accumulate", "Raccumulate", "Fetch_and_op", "Compare_and_swap", "Rget", "=Get", "Free_mem", "Alloc_mem"}},
	{"files", []string{"File_", "Register_datarep"}},
	{"tools (MPI_T)", []string{"T_"}},
	{"sessions", []string{"Session_", "Group_from_session", "Comm_create_from_group", "Intercomm_create_from_groups"}},
	{"starting and connecting programs", []string{"Comm_spawn", "Comm_accept", "Comm_connect", "Comm_join", "Comm_get_parent", "Open_port", "Close_port", "Lookup_name", "Publish_name", "Unpublish_name"}},
	{"info", []string{"Info_"}},
	{"groups", []string{"Group_"}},
	{"attributes", []string{"Comm_create_keyval", "Comm_free_keyval", "Comm_get_attr", "Comm_set_attr", "Comm_delete_attr", "Type_create_keyval", "Type_free_keyval", "Type_get_attr", "Type_set_attr", "Type_delete_attr", "Attr_", "Keyval_"}},
	{"topologies", []string{"Cart", "Graph", "Dist_graph", "Topo_test", "Dims_create"}},
	{"datatypes", []string{"Type_", "Pack", "Unpack", "Get_address", "Get_elements", "Get_count", "Aint_", "Status_set_elements"}},
	{"errors", []string{"Error_", "Errhandler_", "Add_error", "Remove_error", "Comm_create_errhandler", "Comm_set_errhandler", "Comm_get_errhandler", "Comm_call_errhandler"}},
	{"collectives", []string{"All", "Iall", "Barrier", "Ibarrier", "Bcast", "Ibcast", "Gather", "Igather", "Scatter", "Iscatter", "Reduce", "Ireduce", "Scan", "Iscan", "Exscan", "Iexscan", "Neighbor", "Ineighbor", "Op_"}},
	{"communicators", []string{"Comm_", "Intercomm_"}},
	{"messages and requests", []string{"Send", "Isend", "Recv", "Irecv", "Ssend", "Issend", "Bsend", "Ibsend", "Rsend", "Irsend", "Sendrecv", "Probe", "Iprobe", "Mprobe", "Improbe", "Mrecv", "Imrecv", "Wait", "Test", "Request_", "Cancel", "Start", "Buffer_", "Message_", "P", "Grequest", "Status"}},
	{"environment", []string{""}},
}

// areaOf is a function's place in areas.
func areaOf(f function) int {
	for i, a := range areas {
		for _, p := range a.prefixes {
			if strings.HasPrefix(f.name, p) || "="+f.name == p {
				return i
			}
		}
	}
	return len(areas) - 1
}

// completeness is the table for people: what there is of each area, and the names of what is missing.
func completeness(functions []function) string {
	have, missing := make([]int, len(areas)), make([][]string, len(areas))
	total, all := 0, 0
	for _, f := range functions {
		i := areaOf(f)
		switch {
		case strings.HasSuffix(f.name, "_c"): // a form with a prototype of its own
		case f.state == "-":
			missing[i] = append(missing[i], f.name)
			all++
		default:
			have[i]++
			total++
			all++
		}
	}
	order := make([]int, len(areas))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return len(missing[order[i]]) < len(missing[order[j]]) })
	var b strings.Builder
	fmt.Fprintf(&b, "| part | functions | not there yet |\n|---|---|---|\n")
	for _, i := range order {
		names := strings.Join(missing[i], ", ")
		if have[i] == 0 {
			names = "all"
		}
		fmt.Fprintf(&b, "| %s | %d of %d | %s |\n", areas[i].name, have[i], have[i]+len(missing[i]), names)
	}
	fmt.Fprintf(&b, "\n%d of %d functions are there.\n", total, all)
	return b.String()
}
