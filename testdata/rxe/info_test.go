package rxe

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// What gorun-info tells of the devices, and of ones that are in some way out of
// reach.
func TestInfoDevices(t *testing.T) {
	path := filepath.Join(built, "gorun-info")
	if out, err := goTool("1", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/gorun-info"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := guest(t).Put(path, ""); err != nil {
		t.Fatal(err)
	}
	t.Run("all", func(t *testing.T) {
		var r struct {
			Devices []struct {
				Name, Provider, Problem string
				Limits                  map[string]uint64
				Ports                   []struct {
					State     string
					ActiveMTU int `json:"active_mtu"`
					GIDs      []struct{ GID string }
				}
				Features []struct{ Feature, Supported, Reason string }
			}
			Missing []struct{ Reason string }
		}
		out := inGuest(t, "gorun-info", "devices", "--json")
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Missing) > 0 {
			t.Fatalf("%v, %+v of\n%s", err, r.Missing, out)
		}
		var names []string
		for _, d := range r.Devices {
			names = append(names, d.Name)
			if d.Provider != "verbs" {
				continue
			}
			if d.Problem != "" || len(d.Ports) != 1 || d.Ports[0].State != "active" || d.Ports[0].ActiveMTU != 4096 ||
				len(d.Ports[0].GIDs) != 2 || !strings.HasPrefix(d.Ports[0].GIDs[0].GID, "fe80:") || d.Limits["max_inline_data"] != 512 {
				t.Errorf("got %+v", d)
			}
			answers := map[string]string{}
			for _, f := range d.Features {
				answers[f.Feature] = f.Supported
			}
			for feature, want := range map[string]string{"rc": "yes", "uc": "yes", "ud": "yes", "srq": "yes", "atomics": "yes", "mw-type2": "yes", "xrc": "no", "dc": "no", "odp": "no"} {
				if answers[feature] != want {
					t.Errorf("%s: %s is %q, want %q", d.Name, feature, answers[feature], want)
				}
			}
		}
		if got := strings.Join(names, " "); got != "soft0 rxe0 rxe1" {
			t.Errorf("got the devices %q", got)
		}
		if out := inGuest(t, "sh", "-c", `gorun-info doctor --json | grep '"devices"'`); !strings.Contains(out, `"state":"ok"`) || !strings.Contains(out, "rxe1 port 1 active") {
			t.Errorf("doctor: %s", out)
		}
	})

	// Each makes the guest worse, looks, and mends it again. doctor finds the same.
	const look = `gorun-info devices; echo status $?; gorun-info doctor --json | grep '"devices"'; `
	for _, c := range []struct {
		name, break_, look, mend string
		status                   string
		reason, fix              string
	}{
		{"no node", "mkdir /tmp/n; mv /dev/infiniband/uverbs* /tmp/n", look, "mv /tmp/n/* /dev/infiniband; rmdir /tmp/n", "0", "no /dev/infiniband/uverbs*", "modprobe ib_uverbs"},
		{"one node less", "mv /dev/infiniband/uverbs1 /tmp/u", look, "mv /tmp/u /dev/infiniband/uverbs1", "0", "libibverbs shows 1 of 2 devices", "apt-get install ibverbs-providers"},
		{"no right", "chmod 600 /dev/infiniband/uverbs*", "su -s /bin/sh nobody -c '" + strings.ReplaceAll(look, "'", `'\''`) + "'; ",
			"chmod 666 /dev/infiniband/uverbs*", "1", "no permission to use the devices: permission denied", "chmod 0666 /dev/infiniband/uverbs*"},
		{"no library", "mv /usr/lib/x86_64-linux-gnu/libibverbs.so.1 /tmp/l", look, "mv /tmp/l /usr/lib/x86_64-linux-gnu/libibverbs.so.1", "0", "there is no libibverbs that can be used", "apt-get install libibverbs1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := inGuest(t, "sh", "-c", c.break_+"; "+c.look+c.mend)
			table, doctor, _ := strings.Cut(out, "status "+c.status+"\n")
			for what, text := range map[string]string{"devices": table, "doctor": doctor} {
				if !strings.Contains(text, c.reason) || !strings.Contains(text, c.fix) {
					t.Errorf("%s: no %q and %q in\n%s", what, c.reason, c.fix, out)
				}
			}
		})
	}
}
