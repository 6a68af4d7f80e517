package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/launcher"
)

// events writes what --output json tells beside the ranks' lines: an object when
// the job starts, one for a failure, one when it has ended. They go where the lines
// go: the first before any rank runs, the others when all lines are written.
type events struct {
	out io.Writer // nil: nobody wants them
	now func() time.Time
}

// jobEvent is such an object. Lines have no key "event".
type jobEvent struct {
	Time     string   `json:"time"`
	Event    string   `json:"event"` // start, failure or end
	Ranks    int      `json:"ranks,omitempty"`
	Hosts    []string `json:"hosts,omitempty"`
	Rank     *int     `json:"rank,omitempty"` // that has failed; none: it was no rank
	Group    int      `json:"group,omitempty"`
	Host     string   `json:"host,omitempty"`
	Program  string   `json:"program,omitempty"`
	PID      int      `json:"pid,omitempty"`
	Signal   int      `json:"signal,omitempty"`
	Message  string   `json:"message,omitempty"`
	Status   *int     `json:"status,omitempty"`
	Restarts int      `json:"restarts,omitempty"`
	Statuses []int    `json:"statuses,omitempty"` // of the ranks
}

func (e events) tell(v jobEvent) {
	if e.out == nil {
		return
	}
	v.Time = e.now().UTC().Format("2006-01-02T15:04:05.000000Z")
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)             // it holds nothing that cannot be
	_, _ = e.out.Write(b.Bytes()) // told.Failed says so
}

func (e events) start(p launcher.Placement) {
	v := jobEvent{Event: "start", Ranks: len(p.Ranks)}
	for _, h := range p.Hosts {
		if len(h.Ranks) > 0 {
			v.Hosts = append(v.Hosts, h.Name)
		}
	}
	e.tell(v)
}

// failure tells why a job did not end well, if it did not.
func (e events) failure(c *launcher.Cause) {
	if c == nil {
		return
	}
	v := jobEvent{Event: "failure", Group: c.Group, Host: c.Host, Program: c.Program, PID: c.PID, Signal: int(c.Signal), Status: &c.Status,
		Message: strings.TrimPrefix(c.String(), "gorun: ")}
	if c.Rank >= 0 {
		v.Rank = &c.Rank
	}
	e.tell(v)
}

// refused tells that the job could not be run.
func (e events) refused(why string, status int) {
	e.tell(jobEvent{Event: "failure", Message: why, Status: &status})
	e.tell(jobEvent{Event: "end", Status: &status})
}

func (e events) end(r launcher.Result, status int) {
	v := jobEvent{Event: "end", Status: &status, Restarts: r.Restarts}
	for _, rank := range r.Ranks {
		if rank.Group == 0 {
			v.Statuses = append(v.Statuses, rank.Status)
		}
	}
	e.tell(v)
}
