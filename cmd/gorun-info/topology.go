package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/internal/topo"
)

// showTopology is gorun-info topo.
func showTopology(_ context.Context, r *request) int {
	if r.record {
		fmt.Fprint(r.out, record(os.DirFS("/")))
		return 0
	}
	m := topo.Here()
	if r.json {
		return r.encode(describe(&m))
	}
	writeTree(r.out, &m)
	return 0
}

// machineJSON is a topology for programs.
type machineJSON struct {
	CPUs    []cpuJSON `json:"cpus"`
	Allowed string    `json:"allowed"`
	Quota   float64   `json:"quota"` // in CPUs; 0: none
	Usable  int       `json:"usable"`
}

// cpuJSON is a CPU: the kernel's number, and the logical indices of what it is in.
type cpuJSON struct {
	Number int            `json:"number"`
	In     map[string]int `json:"in"`
	Small  bool           `json:"small,omitempty"`
}

func describe(m *topo.Machine) machineJSON {
	j := machineJSON{Allowed: m.Allowed.String(), Quota: m.Quota, Usable: m.Usable()}
	for _, c := range m.CPUs {
		in := make(map[string]int)
		for k := topo.Thread; k < topo.Whole; k++ {
			if c.In[k] >= 0 {
				in[k.String()] = int(c.In[k])
			}
		}
		j.CPUs = append(j.CPUs, cpuJSON{c.Number, in, c.Small})
	}
	return j
}

// part is an object of the tree, or several kinds with the same CPUs: a core
// with caches of its own.
type part struct {
	names []string
	cpus  topo.Set
	parts []*part
}

// tree puts the objects of a machine into each other. Kinds come largest first;
// an object goes into the smallest part that holds all of it.
func tree(m *topo.Machine) *part {
	var all topo.Set
	for _, c := range m.CPUs {
		all.Add(c.Number)
	}
	root := &part{cpus: all}
	for k := topo.Package; k >= topo.Core; k-- {
		for _, o := range m.Objects(k) {
			root.add(k.String()+" "+strconv.Itoa(o.Index), o.CPUs)
		}
	}
	return root
}

func (p *part) add(name string, cpus topo.Set) {
	for _, q := range p.parts {
		if q.cpus.Contains(cpus) {
			if q.cpus.Len() == cpus.Len() && len(q.parts) == 0 {
				q.names = append(q.names, name)
			} else {
				q.add(name, cpus)
			}
			return
		}
	}
	// A NUMA node may hold several packages, which came first.
	n := &part{names: []string{name}, cpus: cpus}
	p.parts = slices.DeleteFunc(p.parts, func(q *part) bool {
		if cpus.Contains(q.cpus) {
			n.parts = append(n.parts, q)
			return true
		}
		return false
	})
	p.parts = append(p.parts, n)
}

func writeTree(w io.Writer, m *topo.Machine) {
	fmt.Fprintln(w, doctor.Machine(m))
	small := topo.Set{}
	for _, c := range m.CPUs {
		if c.Small {
			small.Add(c.Number)
		}
	}
	var write func(p *part, indent string)
	write = func(p *part, indent string) {
		for _, q := range p.parts {
			line := indent + strings.Join(q.names, ", ")
			line += ": CPU"
			if q.cpus.Len() > 1 {
				line += "s"
			}
			line += " " + q.cpus.String()
			if may := q.cpus.And(m.Allowed); may.Len() == 0 {
				line += " (not allowed)"
			} else if may.Len() < q.cpus.Len() && len(q.parts) == 0 {
				line += " (allowed: " + may.String() + ")"
			}
			if len(q.parts) == 0 && q.cpus.And(small).Len() > 0 {
				line += " (efficient)"
			}
			fmt.Fprintln(w, line)
			write(q, indent+"  ")
		}
	}
	write(tree(m), "  ")
	if m.Quota > 0 {
		fmt.Fprintf(w, "quota: %s CPUs\n", strconv.FormatFloat(m.Quota, 'g', 4, 64))
	}
}

// recorder notes every file that is read of a file system.
type recorder struct {
	fs.FS
	names []string
	text  map[string]string
}

var _ fs.ReadFileFS = (*recorder)(nil)

func (r *recorder) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(r.FS, name)
	if err == nil && r.text[name] == "" {
		r.names = append(r.names, name)
		r.text[name] = string(text)
	}
	return text, err
}

// record writes down the files from which a machine is read, in the form of
// testdata/topo. Of the status of this process only what counts is told.
func record(root fs.FS) string {
	r := &recorder{FS: root, text: make(map[string]string)}
	m := topo.Read(r)
	var b strings.Builder
	fmt.Fprintf(&b, "# Recorded by gorun-info topo --record: %s.\n", doctor.Machine(&m))
	for _, name := range r.names {
		text := r.text[name]
		if strings.HasSuffix(name, "/status") {
			text = allowedLine(text)
		}
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		fmt.Fprintf(&b, "%s: %s\n", name, lines[0])
		for _, line := range lines[1:] {
			fmt.Fprintf(&b, "| %s\n", line)
		}
	}
	return b.String()
}

func allowedLine(status string) string {
	for line := range strings.Lines(status) {
		if strings.HasPrefix(line, "Cpus_allowed_list:") {
			return line
		}
	}
	return ""
}
