package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/rdma"
)

// The software devices, as the option or the environment names them, with all
// that there is to know.
func TestDevices(t *testing.T) {
	t.Setenv("GORUN_EMULATE", "mlx5_0,mlx5_1")
	status, out, errs := info(t, "devices", "--json")
	var r deviceReport
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); status != 0 || errs != "" || err != nil {
		t.Fatalf("status %d, %q, %v", status, errs, err)
	}
	var names []string
	for _, f := range r.Devices {
		if f.Provider == "soft" {
			names = append(names, f.Name)
		}
		if f.Problem != "" || len(f.Features) != len(rdma.Features()) || len(f.Ports) == 0 {
			t.Errorf("%s: %+v", f.Name, f)
		}
	}
	if got := strings.Join(names, " "); got != "mlx5_0 mlx5_1" {
		t.Errorf("got the devices %q", got)
	}
	first := r.Devices[0]
	if p := first.Ports[0]; p.Port != 1 || p.State != "active" || p.ActiveMTU != 4096 || len(p.GIDs) != 2 || p.MaxMessage == 0 || p.Problem != "" {
		t.Errorf("got port %+v", p)
	}
	if first.Limits["max_qp"] == 0 || first.Limits["max_inline_data"] == 0 || !first.OneSided {
		t.Errorf("got limits %v", first.Limits)
	}
	for _, f := range first.Features {
		if (f.Supported == supported) != (f.Reason == "") {
			t.Errorf("%+v: expected a reason unless it is supported", f)
		}
	}

	status, out, errs = info(t, "devices", "--emulate", "one")
	if status != 0 || errs != "" || strings.Contains(out, "mlx5_0") {
		t.Errorf("--emulate: status %d, %q\n%s", status, errs, out)
	}
	for _, want := range []string{"one soft 1 active 4096 of 4096 0 ", "\nmax_inline_data ", "\nFEATURE one\n"} {
		if !strings.Contains(squeeze(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	status, out, errs = info(t, "devices", "--emulate", "one,one")
	if status != statusUsage || out != "" || !strings.Contains(errs, "--emulate") {
		t.Errorf("names that are there twice: status %d, %q, %q", status, out, errs)
	}
}

func TestRepresentors(t *testing.T) {
	status, out, errs := info(t, "devices", "--representors", "--json", "--emulate", "soft0,0000:03:00.0")
	var list []deviceRepresentors
	if err := json.Unmarshal([]byte(out), &list); status != 0 || errs != "" || err != nil || len(list) < 2 {
		t.Fatalf("status %d, %q, %v: %+v", status, errs, err, list)
	}
	for i, want := range []deviceRepresentors{
		{Device: "soft0", Provider: "soft", Representors: []representorFact{{"soft0-host", "0000:18:00.0"}}},
		{Device: "0000:03:00.0", Provider: "soft", PCI: "0000:03:00.0", Representors: []representorFact{{"0000:03:00.0-host", "0000:18:00.1"}}},
	} {
		if !reflect.DeepEqual(list[i], want) {
			t.Errorf("got %+v, want %+v", list[i], want)
		}
	}
	status, out, errs = info(t, "devices", "--representors", "--emulate", "one")
	if status != 0 || errs != "" || !strings.Contains(squeeze(out), "\none soft - one-host 0000:18:00.0\n") {
		t.Errorf("status %d, %q\n%s", status, errs, out)
	}
	if status, _, errs = info(t, "devices", "--representors", "--emulate", "one,one"); status != statusUsage || !strings.Contains(errs, "--emulate") {
		t.Errorf("names that are there twice: status %d, %q", status, errs)
	}
	if status, _, errs = info(t, "topo", "--representors"); status != statusUsage || !strings.Contains(errs, "--representors has no meaning") {
		t.Errorf("with topo: status %d, %q", status, errs)
	}
}

// A software device has a node GUID of its own, which is the same in each process.
func TestSoftwareDevicesHaveNodeGUIDs(t *testing.T) {
	guids := func() (all []string) {
		t.Helper()
		status, out, errs := info(t, "devices", "--emulate", "one,two")
		if status != 0 {
			t.Fatalf("status %d: %s", status, errs)
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "node_guid" {
				all = f[1:]
			}
		}
		return all
	}
	first := guids()
	if len(first) != 2 || first[0] == first[1] || strings.Trim(first[0], "0") == "" || !slices.Equal(guids(), first) {
		t.Errorf("the node GUIDs are %q, then %q, want two that differ and stay", first, guids())
	}
}

// A limit that is added to the attributes is added to the table.
func TestLimitsAreAllOfThem(t *testing.T) {
	numbers := reflect.ValueOf(&rdma.DeviceAttr{}).Elem()
	told := map[string]bool{"Firmware": true, "VendorID": true, "NodeGUID": true, "OneSided": true, "ODP": true} // ODP: a feature
	for i := range numbers.NumField() {
		var attr rdma.DeviceAttr
		name := numbers.Type().Field(i).Name
		if told[name] {
			continue
		}
		want := uint64(7)
		switch f := reflect.ValueOf(&attr).Elem().Field(i); {
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
			want = 1
		case f.CanInt():
			f.SetInt(7)
		default:
			f.SetUint(7)
		}
		n := 0
		for _, l := range limits {
			if l.of(&attr) == want {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is in %d rows", name, n)
		}
	}
}

// A sick device says of each question what came of it, and the others are told all the same.
func TestSickDevices(t *testing.T) {
	lacks := errors.New("no right to")
	devices := []rdma.Device{
		&fake{name: "shut", open: &rdma.OpError{Op: "open_device", Detail: "shut: no right to", Err: syscall.EACCES}},
		&fake{name: "sick", port: syscall.EIO, gid: syscall.EIO, features: lacks},
		&fake{name: "old", gid: syscall.EIO, features: &rdma.OpError{Op: "rc", Detail: "tried it", Err: rdma.ErrNotSupported}},
		&fake{name: "older", gid: syscall.EIO, features: &rdma.OpError{Op: "rc", Detail: "tried it", Err: rdma.ErrNotSupported}},
	}
	r := deviceReport{Missing: []doctor.Gap{{Reason: "a thing", Fix: "a command"}}}
	for _, d := range devices {
		r.Devices = append(r.Devices, examine(fakes{}, d))
	}
	var out strings.Builder
	r.table(&out)
	var all []string
	for _, f := range rdma.Features() {
		all = append(all, f.String())
	}
	features := strings.Join(all, ", ")
	for _, want := range []string{
		"shut fake - not usable: open_device: shut: no right to: permission denied\n",
		"sick fake 1 query_port: input/output error\n",
		"old fake 1 init 256 of 4096 5 9 query_gid: input/output error\n",
		"LIMIT sick old older\nmax_qp 3 3 3\n",
		"FEATURE sick old older\nrc unknown no no\n",
		"\nsick: unknown " + features + ": no right to\nold, older: no " + features + ": tried it\n",
		"\nverbs: a thing\nfix: a command\n",
	} {
		if !strings.Contains(squeeze(out.String()), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// squeeze makes runs of blanks one.
func squeeze(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

// fakes is the provider of devices with faults.
type fakes struct{}

func (fakes) Name() string                    { return "fake" }
func (fakes) Devices() ([]rdma.Device, error) { return nil, nil }

// fake is a device that answers with these errors.
type fake struct {
	rdma.Context
	name                      string
	open, port, gid, features error
}

func (f *fake) Name() string                 { return f.name }
func (f *fake) Open() (rdma.Context, error)  { return f, f.open }
func (f *fake) Close() error                 { return nil }
func (f *fake) QueryDevice() rdma.DeviceAttr { return rdma.DeviceAttr{MaxQP: 3} }
func (f *fake) Supports(rdma.Feature) error  { return f.features }

func (f *fake) QueryPort(port uint8) (rdma.PortAttr, error) {
	if port > 1 {
		return rdma.PortAttr{}, rdma.ErrInvalid
	}
	if f.port != nil {
		return rdma.PortAttr{}, fmt.Errorf("query_port: %w", f.port)
	}
	return rdma.PortAttr{State: 2, ActiveMTU: rdma.MTU256, MaxMTU: rdma.MTU4096, LID: 5, MaxMsgSz: 9, GIDTblLen: 4}, nil
}

func (f *fake) QueryGID(uint8, int) (rdma.GID, error) {
	return rdma.GID{}, fmt.Errorf("query_gid: %w", f.gid)
}
