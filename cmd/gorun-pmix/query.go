package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/pmix"
	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// Query answers what processes want to know of the job. libpmix itself answers what
// it was told when namespaces were registered; everything here comes from the
// launcher's table of processes, asked for anew each time.
func (h *helper) Query(r pmix.Request, queries []pmix.Query) {
	h.ask(link.Message{Op: link.Table}, func(m link.Message) {
		if m.Code != link.OK {
			r.Infos(status(m), nil)
			return
		}
		infos, missing := h.answers(queries, m.Jobs)
		switch {
		case len(infos) == 0:
			r.Infos(pmix.NotFound(), nil)
		case missing:
			r.Infos(pmix.Partial(), infos)
		default:
			r.Infos(0, infos)
		}
	})
}

// question is a key of a query, and what it is about.
type question struct {
	pmix.Query
	h    *helper
	jobs []link.Job
	job  *link.Job // that the query names; nil: there is none
}

// questions are the keys that can be answered. The second half of an answer tells
// whether there is one.
var questions = map[string]func(*question) (any, bool){
	"PMIX_QUERY_NAMESPACES":       (*question).namespaces,
	"PMIX_QUERY_NAMESPACE_INFO":   (*question).namespaceInfo,
	"PMIX_QUERY_JOB_STATUS":       (*question).jobStatus,
	"PMIX_QUERY_PROC_TABLE":       (*question).table,
	"PMIX_QUERY_LOCAL_PROC_TABLE": (*question).localTable,
	"PMIX_QUERY_MEMORY_USAGE":     (*question).memory,
	"PMIX_QUERY_SPAWN_SUPPORT":    text("PMIX_HOST,PMIX_HOSTFILE,PMIX_ADD_HOST,PMIX_ADD_HOSTFILE,PMIX_WDIR,PMIX_PPR,PMIX_MAPBY,PMIX_RANKBY,PMIX_BINDTO"),
	"PMIX_QUERY_DEBUG_SUPPORT":    text(""), // debuggers attach to the processes themselves
	"PMIX_QUERY_NUM_PSETS":        func(*question) (any, bool) { return uint64(0), true },
	"PMIX_QUERY_PSET_NAMES":       text(""),
	"PMIX_JOB_SIZE":               number(func(j *link.Job) int { return len(j.Procs) }),
	"PMIX_NUM_NODES": number(func(j *link.Job) int {
		hosts := map[string]bool{}
		for _, p := range j.Procs {
			hosts[p.Host] = true
		}
		return len(hosts)
	}),
}

// These answer with the names of all others, or of what qualifies them.
const (
	supportedKeys       = "PMIX_QUERY_SUPPORTED_KEYS"
	supportedQualifiers = "PMIX_QUERY_SUPPORTED_QUALIFIERS"
	qualifiers          = "PMIX_NSPACE,PMIX_PROCID,PMIX_QUERY_LOCAL_ONLY,PMIX_QUERY_REFRESH_CACHE"
)

func text(s string) func(*question) (any, bool) {
	return func(*question) (any, bool) { return s, true }
}

func number(of func(*link.Job) int) func(*question) (any, bool) {
	return func(q *question) (any, bool) {
		if q.job == nil {
			return nil, false
		}
		return uint32(of(q.job)), true
	}
}

// answers are the answers that there are, in the order of the keys.
func (h *helper) answers(queries []pmix.Query, jobs []link.Job) (infos []pmix.Info, missing bool) {
	for _, query := range queries {
		q := question{Query: query, h: h, jobs: jobs}
		for i := range jobs {
			if jobs[i].Name == query.Namespace || query.Namespace == "" && q.job == nil {
				q.job = &jobs[i]
			}
		}
		for _, key := range query.Keys {
			value, ok := q.answer(key)
			if ok {
				infos = append(infos, pmix.Info{Name: key, Value: value})
			}
			missing = missing || !ok
		}
	}
	return infos, missing
}

func (q *question) answer(key string) (any, bool) {
	switch key {
	case supportedKeys:
		names := []string{supportedKeys, supportedQualifiers}
		for name := range questions {
			names = append(names, name)
		}
		slices.Sort(names)
		return strings.Join(names, ","), true
	case supportedQualifiers:
		return qualifiers, true
	}
	if f := questions[key]; f != nil {
		return f(q)
	}
	return nil, false
}

func (q *question) namespaces() (any, bool) {
	names := make([]string, len(q.jobs))
	for i, j := range q.jobs {
		names[i] = j.Name
	}
	return strings.Join(names, ","), true
}

func (q *question) namespaceInfo() (any, bool) {
	list := make([]pmix.Info, len(q.jobs))
	for i, j := range q.jobs {
		list[i] = pmix.Info{Name: "PMIX_JOB_INFO_ARRAY", Value: []pmix.Info{
			{Name: "PMIX_NSPACE", Value: j.Name},
			{Name: "PMIX_CMD_LINE", Value: j.Command},
			{Name: "PMIX_JOB_SIZE", Value: uint32(len(j.Procs))},
		}}
	}
	return list, true
}

// jobStatus is 0 while a rank runs or is yet to, and for a job that has ended well.
func (q *question) jobStatus() (any, bool) {
	if q.job == nil {
		return nil, false
	}
	for _, p := range q.job.Procs {
		if p.Gone && p.Status != 0 {
			return pmix.Failed(), true
		}
	}
	return pmix.Status(0), true
}

func (q *question) table() (any, bool) {
	if q.job == nil {
		return nil, false
	}
	list := make([]pmix.Process, len(q.job.Procs))
	for rank, p := range q.job.Procs {
		list[rank] = pmix.Process{
			Proc: pmix.Proc{Space: q.job.Name, Rank: uint32(rank)},
			Host: p.Host, Program: p.Program, PID: p.PID, Exit: p.Status, State: state(p),
		}
	}
	return list, true
}

func state(p link.Process) pmix.State {
	switch {
	case p.PID == 0:
		return pmix.Prepared
	case p.Gone && p.Signal != 0:
		return pmix.EndedBySignal
	case p.Gone && p.Status != 0:
		return pmix.EndedNonZero
	case p.Gone:
		return pmix.Ended
	case p.Joined:
		return pmix.Connected
	}
	return pmix.Running
}

// local tells which of a job's ranks are on this host.
func (q *question) local() map[uint32]bool {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	ranks := map[uint32]bool{}
	s := q.h.spaces[q.job.Name]
	for rank, node := range s.NodeOf {
		if int(node) == s.Node {
			ranks[uint32(rank)] = true
		}
	}
	return ranks
}

func (q *question) localTable() (any, bool) {
	list, ok := q.table()
	if !ok {
		return nil, false
	}
	here := q.local()
	return slices.DeleteFunc(list.([]pmix.Process), func(p pmix.Process) bool { return !here[p.Rank] }), true
}

// memory tells of this host only: where the job has others too, the answer is
// there when it was asked for this one.
func (q *question) memory() (any, bool) {
	if q.job == nil {
		return nil, false
	}
	here := q.local()
	if len(here) < len(q.job.Procs) && !q.Local {
		return nil, false
	}
	host, sum, n := "", 0.0, 0
	for rank := range here {
		p := q.job.Procs[rank]
		host = p.Host
		if m, ok := memoryOf(strconv.Itoa(p.PID)); ok && p.PID > 0 && !p.Gone {
			sum += m
			n++
		}
	}
	own, ok := memoryOf("self")
	if n == 0 || !ok {
		return nil, false
	}
	return []pmix.Info{
		{Name: "PMIX_HOSTNAME", Value: host},
		{Name: "PMIX_DAEMON_MEMORY", Value: float32(own)},
		{Name: "PMIX_CLIENT_AVG_MEMORY", Value: float32(sum / float64(n))},
	}, true
}

// memoryOf is a process' share of memory (PSS) in megabytes.
func memoryOf(pid string) (megabytes float64, ok bool) {
	text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	var kilobytes uint64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return 0, false
	}
	return float64(kilobytes) / 1024, true
}
