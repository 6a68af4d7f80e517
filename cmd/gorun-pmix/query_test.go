package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/pmix"
	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// Two namespaces over two hosts, as host 0 sees them.
func asked() (*helper, []link.Job) {
	h := newHelper(nil)
	h.spaces["a"] = link.Space{Name: "a", Node: 0, NodeOf: []uint32{0, 1, 0}}
	h.spaces["b"] = link.Space{Name: "b", Node: link.Elsewhere, NodeOf: []uint32{0}}
	return h, []link.Job{
		{Name: "a", Command: "p x", Procs: []link.Process{
			{Host: "h0", Program: "p", PID: os.Getpid(), Joined: true},
			{Host: "h1", Program: "p", PID: 11, Gone: true},
			{Host: "h0", Program: "p", PID: os.Getpid()},
		}},
		{Name: "b", Command: "q", Procs: []link.Process{{Host: "h1", Program: "q"}}},
	}
}

func TestAnswers(t *testing.T) {
	h, jobs := asked()
	proc := func(rank uint32, host string, pid int, state pmix.State) pmix.Process {
		return pmix.Process{Proc: pmix.Proc{Space: "a", Rank: rank}, Host: host, Program: "p", PID: pid, State: state}
	}
	me := os.Getpid()
	for key, want := range map[string]any{
		"PMIX_QUERY_NAMESPACES":       "a,b",
		"PMIX_QUERY_PROC_TABLE":       []pmix.Process{proc(0, "h0", me, pmix.Connected), proc(1, "h1", 11, pmix.Ended), proc(2, "h0", me, pmix.Running)},
		"PMIX_QUERY_LOCAL_PROC_TABLE": []pmix.Process{proc(0, "h0", me, pmix.Connected), proc(2, "h0", me, pmix.Running)},
		"PMIX_JOB_SIZE":               uint32(3),
		"PMIX_NUM_NODES":              uint32(2),
		"PMIX_QUERY_JOB_STATUS":       pmix.Status(0),
		"PMIX_QUERY_NUM_PSETS":        uint64(0),
		"PMIX_QUERY_NAMESPACE_INFO": []pmix.Info{
			{Name: "PMIX_JOB_INFO_ARRAY", Value: []pmix.Info{{Name: "PMIX_NSPACE", Value: "a"}, {Name: "PMIX_CMD_LINE", Value: "p x"}, {Name: "PMIX_JOB_SIZE", Value: uint32(3)}}},
			{Name: "PMIX_JOB_INFO_ARRAY", Value: []pmix.Info{{Name: "PMIX_NSPACE", Value: "b"}, {Name: "PMIX_CMD_LINE", Value: "q"}, {Name: "PMIX_JOB_SIZE", Value: uint32(1)}}},
		},
	} {
		for _, namespace := range []string{"a", ""} { // the job's first is meant where none is named
			infos, missing := h.answers([]pmix.Query{{Keys: []string{key}, Namespace: namespace}}, jobs)
			if missing || !reflect.DeepEqual(infos, []pmix.Info{{Name: key, Value: want}}) {
				t.Errorf("%s of %q: got %+v, %v, want %+v", key, namespace, infos, missing, want)
			}
		}
	}
}

func TestAnswersThatAreNotThere(t *testing.T) {
	h, jobs := asked()
	infos, missing := h.answers([]pmix.Query{
		{Keys: []string{"PMIX_QUERY_QUEUE_LIST", "PMIX_JOB_SIZE", "PMIX_QUERY_MEMORY_USAGE"}, Namespace: "a"}, // another host's memory is not known here
		{Keys: []string{"PMIX_JOB_SIZE", "PMIX_QUERY_PROC_TABLE", "PMIX_QUERY_LOCAL_PROC_TABLE", "PMIX_QUERY_JOB_STATUS", "PMIX_QUERY_MEMORY_USAGE"}, Namespace: "none"},
	}, jobs)
	if want := []pmix.Info{{Name: "PMIX_JOB_SIZE", Value: uint32(3)}}; !missing || !reflect.DeepEqual(infos, want) {
		t.Errorf("got %+v, %v, want %+v and more missing", infos, missing, want)
	}
	if infos, missing := h.answers([]pmix.Query{{Keys: []string{"PMIX_JOB_SIZE"}}}, nil); len(infos) > 0 || !missing {
		t.Errorf("of no job: got %+v, %v", infos, missing)
	}
}

func TestMemory(t *testing.T) {
	h, jobs := asked()
	infos, missing := h.answers([]pmix.Query{{Keys: []string{"PMIX_QUERY_MEMORY_USAGE"}, Local: true}}, jobs)
	if missing || len(infos) != 1 {
		t.Fatalf("got %+v, %v", infos, missing)
	}
	list := infos[0].Value.([]pmix.Info)
	if len(list) != 3 || list[0].Value != "h0" || list[1].Value.(float32) <= 0 || list[2].Value.(float32) <= 0 {
		t.Errorf("got %+v", list)
	}
	if _, ok := memoryOf("0"); ok {
		t.Error("there is a process 0")
	}
}

func TestSupported(t *testing.T) {
	h, _ := asked()
	infos, missing := h.answers([]pmix.Query{{Keys: []string{supportedKeys, supportedQualifiers}}}, nil)
	if missing || len(infos) != 2 {
		t.Fatalf("got %+v, %v", infos, missing)
	}
	for name := range questions {
		if !strings.Contains(infos[0].Value.(string), name) {
			t.Errorf("%s is not in %s", name, infos[0].Value)
		}
	}
}

func TestJobStatus(t *testing.T) {
	h, jobs := asked()
	jobs[0].Procs[1].Status = 3
	infos, _ := h.answers([]pmix.Query{{Keys: []string{"PMIX_QUERY_JOB_STATUS", "PMIX_QUERY_PROC_TABLE"}}}, jobs)
	if infos[0].Value != pmix.Failed() || infos[1].Value.([]pmix.Process)[1].State != pmix.EndedNonZero {
		t.Errorf("got %+v", infos)
	}
	jobs[0].Procs[1].Signal = 9
	jobs[0].Procs[2].PID = 0
	infos, _ = h.answers([]pmix.Query{{Keys: []string{"PMIX_QUERY_PROC_TABLE"}}}, jobs)
	if list := infos[0].Value.([]pmix.Process); list[1].State != pmix.EndedBySignal || list[2].State != pmix.Prepared {
		t.Errorf("got %+v", list)
	}
}
