package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// deviceReport is what gorun-info devices tells.
type deviceReport struct {
	Devices []*deviceFacts `json:"devices"`
	// Missing is what keeps libibverbs' devices away, or more of them.
	Missing []doctor.Gap `json:"missing"`
}

// deviceFacts are those of one device.
type deviceFacts struct {
	Name     string            `json:"name"`
	Provider string            `json:"provider"`
	Problem  string            `json:"problem"` // why it cannot be opened: nothing else is known then
	Firmware string            `json:"firmware"`
	VendorID uint32            `json:"vendor_id"`
	NodeGUID string            `json:"node_guid"`
	OneSided bool              `json:"one_sided"` // writes and reads need nothing of the target's process
	Limits   map[string]uint64 `json:"limits"`
	Ports    []portFacts       `json:"ports"`
	Features []featureFacts    `json:"features"`
}

type portFacts struct {
	Port       int       `json:"port"`
	Problem    string    `json:"problem"` // what could not be read
	State      string    `json:"state"`
	ActiveMTU  int       `json:"active_mtu"`
	MaxMTU     int       `json:"max_mtu"`
	LID        uint16    `json:"lid"`
	MaxMessage uint32    `json:"max_message"`
	GIDs       []gidFact `json:"gids"` // those that are set
}

type gidFact struct {
	Index int    `json:"index"`
	GID   string `json:"gid"`
}

// featureFacts is what Context.Supports has answered.
type featureFacts struct {
	Feature   string `json:"feature"`
	Supported string `json:"supported"`
	Reason    string `json:"reason"` // of all answers but yes
}

// The answers about a feature.
const (
	supported   = "yes"
	unsupported = "no"
	unknown     = "unknown" // it could not be found out
)

// limits are those of rdma.DeviceAttr, under libibverbs' names.
var limits = []struct {
	name string
	of   func(*rdma.DeviceAttr) uint64
}{
	{"max_qp", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxQP) }},
	{"max_qp_wr", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxQPWR) }},
	{"max_sge", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxSGE) }},
	{"max_cq", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxCQ) }},
	{"max_cqe", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxCQE) }},
	{"max_mr", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxMR) }},
	{"max_mr_size", func(a *rdma.DeviceAttr) uint64 { return a.MaxMRSize }},
	{"max_pd", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxPD) }},
	{"max_qp_rd_atom", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxQPRdAtom) }},
	{"max_qp_init_rd_atom", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxQPInitRdAtom) }},
	{"max_inline_data", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxInlineData) }},
	{"max_inline_recv", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxInlineRecv) }},
	{"max_srq", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxSRQ) }},
	{"max_srq_wr", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxSRQWR) }},
	{"max_srq_sge", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxSRQSGE) }},
	{"srq_resize", func(a *rdma.DeviceAttr) uint64 {
		if a.SRQResize {
			return 1
		}
		return 0
	}},
	{"max_mw", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxMW) }},
	{"max_ah", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxAH) }},
	{"max_tags", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxTags) }},
	{"max_tag_ops", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxTagOps) }},
	{"max_tag_sge", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxTagSGE) }},
	{"max_rndv_hdr_size", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxRndvHdr) }},
	{"max_mkey_entries", func(a *rdma.DeviceAttr) uint64 { return uint64(a.MaxMkeyEntries) }},
	{"clock_hz", func(a *rdma.DeviceAttr) uint64 { return a.ClockHz }},
}

// showDevices is gorun-info devices.
func showDevices(ctx context.Context, r *request) int {
	if r.reps {
		return showRepresentors(ctx, r)
	}
	report, err := survey(ctx, r)
	if err != nil {
		fmt.Fprintf(r.err, "gorun-info: %v\n", err)
		if errors.Is(err, rdma.ErrInvalid) { // the names
			return statusUsage
		}
		return statusMissing
	}
	if ctx.Err() != nil {
		return statusInterrupted
	}
	if !r.json {
		report.table(r.out)
	} else if status := r.encode(report); status != 0 {
		return status
	}
	if slices.ContainsFunc(report.Devices, func(d *deviceFacts) bool { return d.Problem != "" }) {
		return statusMissing
	}
	return 0
}

// survey asks every device of every provider, all of one at once. Its error is that
// of the software devices, whose names may be bad.
func survey(ctx context.Context, r *request) (*deviceReport, error) {
	names := currentEmulate(r)
	software, err := soft.New(soft.Config{Names: names})
	if err != nil {
		return nil, fmt.Errorf("the software devices %q (--emulate, GORUN_EMULATE): %w", names, err)
	}
	defer software.Close()
	report := &deviceReport{Missing: []doctor.Gap{}}
	for _, p := range []rdma.Provider{software, verbs.New(verbs.Config{})} {
		devices, _ := inTime(ctx, func() []rdma.Device {
			list, _ := p.Devices() // what hinders it is told by Gaps
			return list
		})
		var waiting sync.WaitGroup
		facts := make([]*deviceFacts, len(devices))
		for i, d := range devices {
			waiting.Go(func() {
				var ok bool
				if facts[i], ok = inTime(ctx, func() *deviceFacts { return examine(p, d) }); !ok {
					facts[i] = &deviceFacts{Name: d.Name(), Provider: p.Name(), Problem: fmt.Sprintf("no answer within %v", doctor.Limit)}
				}
			})
		}
		waiting.Wait()
		report.Devices = append(report.Devices, facts...)
	}
	missing, ok := inTime(ctx, r.view().Gaps)
	if !ok {
		missing = []doctor.Gap{{Reason: fmt.Sprintf("libibverbs does not answer within %v", doctor.Limit), Fix: "ibv_devinfo; dmesg | tail"}}
	}
	report.Missing = append(report.Missing, missing...)
	return report, nil
}

// inTime is what f returns, unless it takes longer than a check of doctor's may:
// what hangs in a driver is left behind, and ends with the process.
func inTime[T any](ctx context.Context, f func() T) (value T, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, doctor.Limit)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case value = <-done:
		return value, true
	case <-ctx.Done():
		return value, false
	}
}

// currentEmulate are the names that --emulate gives the software devices, or the
// environment.
func currentEmulate(r *request) []string {
	list := cmp.Or(r.emulate, envvar.Get(r.environ, "GORUN_EMULATE"))
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' })
}

// examine opens a device and asks for all that there is to ask.
func examine(p rdma.Provider, d rdma.Device) *deviceFacts {
	f := &deviceFacts{Name: d.Name(), Provider: p.Name(), Limits: map[string]uint64{}}
	c, err := d.Open()
	if err != nil {
		f.Problem = err.Error()
		return f
	}
	defer c.Close()
	attr := c.QueryDevice()
	f.Firmware, f.VendorID, f.OneSided = attr.Firmware, attr.VendorID, attr.OneSided
	f.NodeGUID = fmt.Sprintf("%016x", attr.NodeGUID)
	for _, l := range limits {
		f.Limits[l.name] = l.of(&attr)
	}
	for n := 1; n <= math.MaxUint8; n++ {
		port, err := c.QueryPort(uint8(n))
		if errors.Is(err, rdma.ErrInvalid) {
			break // ports count from 1 without gaps
		}
		f.Ports = append(f.Ports, examinePort(c, n, port, err))
	}
	for _, feature := range rdma.Features() {
		f.Features = append(f.Features, answer(feature, c.Supports(feature)))
	}
	return f
}

func examinePort(c rdma.Context, n int, attr rdma.PortAttr, err error) portFacts {
	p := portFacts{Port: n, GIDs: []gidFact{}}
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	p.State, p.ActiveMTU, p.MaxMTU = portState(attr.State), attr.ActiveMTU.Bytes(), attr.MaxMTU.Bytes()
	p.LID, p.MaxMessage = attr.LID, attr.MaxMsgSz
	for i := range attr.GIDTblLen {
		gid, err := c.QueryGID(uint8(n), i)
		if err != nil {
			p.Problem = err.Error()
			break
		}
		if gid != (rdma.GID{}) {
			p.GIDs = append(p.GIDs, gidFact{i, gid.String()})
		}
	}
	return p
}

func portState(s rdma.PortState) string {
	switch s {
	case rdma.PortActive:
		return "active"
	case rdma.PortDown:
		return "down"
	case 2:
		return "init"
	case 3:
		return "armed"
	}
	return fmt.Sprintf("state %d", s)
}

// answer is what an error of Context.Supports means.
func answer(f rdma.Feature, err error) featureFacts {
	a := featureFacts{Feature: f.String(), Supported: supported}
	if err == nil {
		return a
	}
	a.Supported, a.Reason = unknown, err.Error()
	if errors.Is(err, rdma.ErrNotSupported) {
		a.Supported = unsupported
		if op, ok := errors.AsType[*rdma.OpError](err); ok && op.Detail != "" {
			a.Reason = strings.TrimPrefix(op.Detail, f.String()+": ") // the rest says no once more
		}
	}
	return a
}

// table prints the report for people: devices and their ports, then limits and
// features with a column for each device, then reasons.
func (r *deviceReport) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tPROVIDER\tPORT\tSTATE\tMTU\tLID\tLONGEST MESSAGE\tGID")
	var known []*deviceFacts
	for _, d := range r.Devices {
		if d.Problem != "" {
			fmt.Fprintf(t, "%s\t%s\t-\tnot usable: %s\n", d.Name, d.Provider, d.Problem)
			continue
		}
		known = append(known, d)
		for _, p := range d.Ports {
			left := fmt.Sprintf("%s\t%s\t%d\t%s\t%d of %d\t%d\t%d", d.Name, d.Provider, p.Port, p.State, p.ActiveMTU, p.MaxMTU, p.LID, p.MaxMessage)
			if p.State == "" {
				left = fmt.Sprintf("%s\t%s\t%d\t\t\t\t", d.Name, d.Provider, p.Port)
			}
			for _, g := range p.GIDs {
				fmt.Fprintf(t, "%s\t%d: %s\n", left, g.Index, g.GID)
				left = "\t\t\t\t\t\t"
			}
			if p.Problem != "" || len(p.GIDs) == 0 {
				fmt.Fprintf(t, "%s\t%s\n", left, cmp.Or(p.Problem, "none"))
			}
		}
	}
	if len(known) > 0 {
		row := func(name string, cell func(d *deviceFacts) any) {
			fmt.Fprint(t, name)
			for _, d := range known {
				fmt.Fprintf(t, "\t%v", cell(d))
			}
			fmt.Fprintln(t)
		}
		head := func(name string) {
			fmt.Fprintln(t)
			row(name, func(d *deviceFacts) any { return d.Name })
		}
		head("IDENTITY")
		row("node_guid", func(d *deviceFacts) any { return d.NodeGUID })
		head("LIMIT")
		for _, l := range limits {
			row(l.name, func(d *deviceFacts) any { return d.Limits[l.name] })
		}
		head("FEATURE")
		for i, f := range rdma.Features() {
			row(f.String(), func(d *deviceFacts) any { return d.Features[i].Supported })
		}
	}
	_ = t.Flush() // told by run, if it fails
	reasons(w, known)
	for _, g := range r.Missing {
		fmt.Fprintf(w, "\nverbs: %s\n  fix: %s\n", g.Reason, g.Fix)
	}
}

// reasons prints why features are not there: each reason once, before it the
// devices and features that it is of.
func reasons(w io.Writer, devices []*deviceFacts) {
	var order []string          // "no DC, UMR: reason"
	of := map[string][]string{} // the devices
	for _, d := range devices {
		features := map[featureFacts][]string{}
		var answers []featureFacts
		for _, f := range d.Features {
			a := featureFacts{Supported: f.Supported, Reason: f.Reason}
			if features[a] == nil {
				answers = append(answers, a)
			}
			features[a] = append(features[a], f.Feature)
		}
		for _, a := range answers {
			if a.Supported == supported {
				continue
			}
			text := fmt.Sprintf("%s %s: %s", a.Supported, strings.Join(features[a], ", "), a.Reason)
			if of[text] == nil {
				order = append(order, text)
			}
			of[text] = append(of[text], d.Name)
		}
	}
	if order != nil {
		fmt.Fprintln(w)
	}
	for _, text := range order {
		fmt.Fprintf(w, "%s: %s\n", strings.Join(of[text], ", "), text)
	}
}
