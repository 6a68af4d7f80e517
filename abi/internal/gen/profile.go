package main

import (
	"bytes"
	"fmt"
	"strings"
)

// noted are the functions whose calls gorun --profile records in programs of other MPIs, with the C around each: what is done before the
// call, and after one that went well. Statements see the parameters, k, the call; LARGE, 1 in the _c form; BEGUN, 1 where the call only starts. What
// they do is in profile/calls.c.
var noted = []struct{ names, before, after string }{
	{"Send Bsend Ssend Rsend Isend Ibsend Issend Irsend", "sent(k, comm, dest, size(count, datatype), tag);", ""},
	{"Recv", oneStatus, "if (source != mpi.proc_null) received(k, comm, status);"},
	{"Sendrecv", oneStatus + "sent(k, comm, dest, size(sendcount, sendtype), sendtag);", "if (source != mpi.proc_null) received(k, comm, status);"},
	{"Sendrecv_replace", oneStatus + "sent(k, comm, dest, size(count, datatype), sendtag);", "if (source != mpi.proc_null) received(k, comm, status);"},
	{"Isendrecv", "sent(k, comm, dest, size(sendcount, sendtype), sendtag);", "will_receive(request, comm, source);"},
	{"Isendrecv_replace", "sent(k, comm, dest, size(count, datatype), sendtag);", "will_receive(request, comm, source);"},
	{"Irecv", "", "will_receive(request, comm, source);"},
	{"Probe Iprobe", "", ""},
	{"Mprobe", "", "matched(message, comm);"},
	{"Improbe", "", "if (*flag) matched(message, comm);"},
	{"Mrecv", oneStatus + "struct comm *c = matched_comm(at(message, 0));", "lock(); received_by(k, c, status); unlock();"},
	{"Imrecv", "struct comm *c = matched_comm(at(message, 0));", "lock(); pending(request, c, 1, 0, -1, 0, 0); unlock();"},
	{"Send_init Bsend_init Ssend_init Rsend_init", "", "will_start(request, comm, 0, dest, size(count, datatype), tag);"},
	{"Recv_init", "", "will_start(request, comm, 1, source, 0, 0);"},
	{"Start", "started(k, request, 1);", ""},
	{"Startall", "started(k, array_of_requests, count);", ""},
	{"Wait", keepOne, "completed(k, &keys, 0, status);"},
	{"Test", keepOne, "if (*flag) completed(k, &keys, 0, status);"},
	{"Waitany", keepAny, "completed(k, &keys, *indx, status);"},
	{"Testany", keepAny, "if (*flag) completed(k, &keys, *indx, status);"},
	{"Waitall", keepAll("count"), "all_completed(k, &keys, array_of_statuses);"},
	{"Testall", keepAll("count"), "if (*flag) all_completed(k, &keys, array_of_statuses);"},
	{"Waitsome Testsome", keepAll("incount"), "some_completed(k, &keys, *outcount, array_of_indices, array_of_statuses);"},
	{"Cancel Request_free", "given_up(request);", ""},

	{"Barrier Ibarrier", "collective(k, members(comm), BEGUN, 0, 0);", ""},
	{"Bcast Ibcast", "struct comm *c = members(comm); int64_t n = c ? size(count, datatype) : 0; collective(k, c, BEGUN, c && c->rank == root ? n : 0, c && c->rank == root ? 0 : n);", ""},
	{"Reduce Ireduce", "struct comm *c = members(comm); int64_t n = c ? size(count, datatype) : 0; collective(k, c, BEGUN, n, c && c->rank == root ? n : 0);", ""},
	{"Allreduce Iallreduce Scan Iscan Exscan Iexscan", "struct comm *c = members(comm); int64_t n = c ? size(count, datatype) : 0; collective(k, c, BEGUN, n, n);", ""},
	{"Reduce_scatter Ireduce_scatter", "struct comm *c = members(comm); int64_t one = c ? size(1, datatype) : 0; if (c) collective(k, c, BEGUN, one * sum(recvcounts, LARGE, c->size), one * nth(recvcounts, LARGE, c->rank));", ""},
	{"Reduce_scatter_block Ireduce_scatter_block", "struct comm *c = members(comm); int64_t n = c ? size(recvcount, datatype) : 0; if (c) collective(k, c, BEGUN, n * c->size, n);", ""},
	{"Gather Igather", "struct comm *c = members(comm); if (c) collective(k, c, BEGUN, in_place(sendbuf) ? 0 : size(sendcount, sendtype), c->rank == root ? size(recvcount, recvtype) * c->size : 0);", ""},
	{"Gatherv Igatherv", "struct comm *c = members(comm); if (c) collective(k, c, BEGUN, in_place(sendbuf) ? 0 : size(sendcount, sendtype), c->rank == root ? size(1, recvtype) * sum(recvcounts, LARGE, c->size) : 0);", ""},
	{"Scatter Iscatter", "struct comm *c = members(comm); if (c) collective(k, c, BEGUN, c->rank == root ? size(sendcount, sendtype) * c->size : 0, in_place(recvbuf) ? 0 : size(recvcount, recvtype));", ""},
	{"Scatterv Iscatterv", "struct comm *c = members(comm); if (c) collective(k, c, BEGUN, c->rank == root ? size(1, sendtype) * sum(sendcounts, LARGE, c->size) : 0, in_place(recvbuf) ? 0 : size(recvcount, recvtype));", ""},
	{"Allgather Iallgather", "struct comm *c = members(comm); int64_t n = c ? size(recvcount, recvtype) : 0; if (c) collective(k, c, BEGUN, in_place(sendbuf) ? n : size(sendcount, sendtype), n * c->size);", ""},
	{"Allgatherv Iallgatherv", "struct comm *c = members(comm); int64_t one = c ? size(1, recvtype) : 0; if (c) collective(k, c, BEGUN, in_place(sendbuf) ? one * nth(recvcounts, LARGE, c->rank) : size(sendcount, sendtype), one * sum(recvcounts, LARGE, c->size));", ""},
	{"Alltoall Ialltoall", "struct comm *c = members(comm); int64_t n = c ? size(recvcount, recvtype) * c->size : 0; if (c) collective(k, c, BEGUN, in_place(sendbuf) ? n : size(sendcount, sendtype) * c->size, n);", ""},
	{"Alltoallv Ialltoallv", "struct comm *c = members(comm); int here = in_place(sendbuf); int64_t one = c ? size(1, recvtype) : 0; " +
		"if (c) collective(k, c, BEGUN, parts(c, here ? recvcounts : sendcounts, LARGE, here ? one : size(1, sendtype), NULL), one * sum(recvcounts, LARGE, c->size));", ""},
	{"Alltoallw Ialltoallw", "struct comm *c = members(comm); int here = in_place(sendbuf); " +
		"if (c) collective(k, c, BEGUN, parts(c, here ? recvcounts : sendcounts, LARGE, 0, here ? recvtypes : sendtypes), sums(recvcounts, LARGE, recvtypes, c->size));", ""},
	{"Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw", "", ""},
	{"Ineighbor_allgather Ineighbor_allgatherv Ineighbor_alltoall Ineighbor_alltoallv Ineighbor_alltoallw", "", ""},

	{"Comm_dup Comm_dup_with_info Comm_split Comm_split_type Comm_create Cart_sub", meet("comm"), "made(newcomm);"},
	{"Comm_idup Comm_idup_with_info Comm_spawn Comm_spawn_multiple Comm_accept Comm_connect", meet("comm"), ""},
	{"Comm_create_group", "", "made(newcomm);"},
	{"Cart_create", meet("comm_old"), "made(comm_cart);"},
	{"Graph_create", meet("comm_old"), "made(comm_graph);"},
	{"Dist_graph_create Dist_graph_create_adjacent", meet("comm_old"), "made(comm_dist_graph);"},
	{"Intercomm_create", meet("local_comm"), ""},
	{"Intercomm_merge", "", "made(newintracomm);"},
	{"Comm_free Comm_disconnect", "freed(comm);", ""},

	{"Win_create Win_allocate Win_allocate_shared Win_create_dynamic", meet("comm"), "win_made(win, comm);"},
	{"Win_free", "win_freed(win);", ""},
	{"Win_fence", "collective(k, members_of_win(win), 0, 0, 0);", ""},
	{"Win_post Win_start Win_complete Win_wait Win_test Win_lock Win_lock_all Win_unlock Win_unlock_all Win_flush Win_flush_all Win_flush_local Win_flush_local_all", "", ""},
	{"Put Rput Accumulate Raccumulate", "moved(k, win, target_rank, 1, size(origin_count, origin_datatype));", ""},
	{"Get Rget", "moved(k, win, target_rank, 0, size(origin_count, origin_datatype));", ""},
	{"Get_accumulate Rget_accumulate", "moved(k, win, target_rank, 0, size(result_count, result_datatype));", ""},
	{"Fetch_and_op Compare_and_swap", "moved(k, win, target_rank, 0, size(1, datatype));", ""},

	// What these call inside of them is no call of the program.
	{"File_open File_close File_sync File_set_view File_set_size File_preallocate", "", ""},
	{"File_read File_read_all File_read_at File_read_at_all File_read_shared File_read_ordered File_write File_write_all File_write_at File_write_at_all File_write_shared File_write_ordered", "", ""},
	{"Finalize", "finalizing();", ""},
}

const (
	oneStatus = "struct room room; status = asked(status, &room, 1);"
	keepOne   = "struct room room; struct keys keys; remember(&keys, request, 1); status = asked(status, &room, keys.n ? 1 : -1);"
	keepAny   = "struct room room; struct keys keys; remember(&keys, array_of_requests, count); status = asked(status, &room, keys.n ? 1 : -1);"
)

func keepAll(count string) string {
	return fmt.Sprintf("struct room room; struct keys keys; remember(&keys, array_of_requests, %s); array_of_statuses = asked(array_of_statuses, &room, keys.n ? keys.n : -1);", count)
}

func meet(comm string) string { return "collective(k, members(" + comm + "), 0, 0, 0);" }

// opaque is a prototype's parameter where a handle may be of any MPI.
func (p param) opaque(large bool) string {
	base := strings.TrimRight(p.kind, "?=")
	if _, ok := handles[base]; ok {
		return "handle %s"
	}
	_, list := handles[strings.TrimSuffix(strings.TrimSuffix(base, "*"), "S")]
	if list || strings.HasPrefix(p.kind, "STATUS") {
		return "void *%s"
	}
	return p.ctype(large)
}

// wrappers are the functions of profile/.
func wrappers(functions []function) ([]byte, error) {
	byName := make(map[string]function)
	for _, f := range functions {
		byName[f.name] = f
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n// One unit with what it calls.\n#include \"calls.c\"\n", notice)
	for _, n := range noted {
		for name := range strings.FieldsSeq(n.names) {
			f, ok := byName[name]
			if !ok {
				return nil, fmt.Errorf("functions.txt has no %s", name)
			}
			f.forms(func(name string, large bool) { f.wrap(&b, name, large, n.before, n.after) })
		}
	}
	for _, f := range []function{byName["Init"], byName["Init_thread"]} {
		f.wrap(&b, f.name, false, "", "")
	}
	return b.Bytes(), nil
}

// wrap writes both entries of a function, MPI_ and PMPI_: libraries for Fortran call either. Each goes on to the next one of its own name, which may be that of
// another tool.
func (f function) wrap(b *bytes.Buffer, name string, large bool, before, after string) {
	heads, types, args := []string{}, []string{}, []string{}
	for _, p := range f.params {
		t := p.opaque(large)
		heads = append(heads, fmt.Sprintf(t, p.name))
		types = append(types, strings.TrimSpace(fmt.Sprintf(t, "")))
		args = append(args, p.name)
	}
	none := func(list []string) string {
		if len(list) == 0 {
			return "void"
		}
		return strings.Join(list, ", ")
	}
	call := fmt.Sprintf("next[p](%s)", strings.Join(args, ", "))
	fmt.Fprintf(b, "\nstatic inline int in_%s(%s) {\n", name, strings.Join(append([]string{"int p", "const void *caller"}, heads...), ", "))
	fmt.Fprintf(b, "\tstatic int (*next[2])(%s);\n\tif (next[p] == NULL)\n\t\tnext[p] = find(&\"PMPI_%s\"[!p]);\n", none(types), name)
	if strings.HasPrefix(f.name, "Init") {
		fmt.Fprintf(b, "\tif (inside)\n\t\treturn %s;\n\tinitializing();\n\tint rc = %s;\n\tinitialized(\"%s\", caller, rc);\n\treturn rc;\n}\n", call, call, name)
	} else {
		constants := ""
		for _, c := range []struct {
			name string
			is   bool
		}{{"LARGE", large}, {"BEGUN", name[0] == 'I' && name[1] >= 'a'}} {
			if strings.Contains(before+after, c.name) {
				constants += fmt.Sprintf("\tenum { %s = %t };\n", c.name, c.is)
			}
		}
		constants = strings.NewReplacer("true", "1", "false", "0").Replace(constants)
		fmt.Fprintf(b, "\tstruct call call, *k = &call;\n\tif (!begin(k, \"%s\", caller))\n\t\treturn %s;\n%s", f.name, call, constants)
		for _, s := range statements(before) {
			fmt.Fprintf(b, "\t%s;\n", s)
		}
		fmt.Fprintf(b, "\tint rc = %s;\n", call)
		if list := statements(after); len(list) > 0 {
			b.WriteString("\tif (rc == 0) {\n")
			for _, s := range list {
				fmt.Fprintf(b, "\t\t%s;\n", s)
			}
			b.WriteString("\t}\n")
		}
		if strings.Contains(before, "struct room") {
			b.WriteString("\tfree(room.large);\n")
		}
		if strings.Contains(before, "struct keys") {
			b.WriteString("\tforget_keys(&keys);\n")
		}
		b.WriteString("\tend(k);\n")
		if f.name == "Finalize" {
			b.WriteString("\tfinalized();\n")
		}
		b.WriteString("\treturn rc;\n}\n")
	}
	if !large {
		for _, form := range []string{"_", "_f08_", "_f08ts_"} { // mpif.h and mpi; mpi_f08 of Open MPI, and of MPICH
			fmt.Fprintf(b, "FORTRAN(%s)\n", "mpi_"+strings.ToLower(name)+form)
		}
	}
	for p, prefix := range []string{"MPI_", "PMPI_"} {
		list := append([]string{fmt.Sprint(p), "__builtin_return_address(0)"}, args...)
		fmt.Fprintf(b, "int %s%s(%s) { return in_%s(%s); }\n", prefix, name, none(heads), name, strings.Join(list, ", "))
	}
}

// statements are those of a line of C without blocks.
func statements(line string) (list []string) {
	for s := range strings.SplitSeq(line, ";") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}
