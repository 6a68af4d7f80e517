package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// one runs the command with a name for its channel that no other process has.
func one(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	environ := []string{fmt.Sprintf("GORUN_CHANNEL=%s-%d", t.Name(), os.Getpid())}
	status = run(context.Background(), args, environ, doca.Stdio{Out: &o, Err: &e})
	return status, o.String(), e.String()
}

// Both ends in one process, with messages and slots of all lengths: each receives what the
// other sends.
func TestBothEnds(t *testing.T) {
	for _, c := range []struct{ dpu, host string }{
		{"-s 1 -n 1", "-s 4080 -n 1"},
		{"-s 256 -n 100", "-s 256 -n 200"},
		{"-s 4080 -n 300 --buffer-size 16", "-s 17 -n 3000 --queue-size 1"},
		{"-s 1024 -n 100 --buffer-size 64 --queue-size 5", "-s 256 -n 10 --buffer-size 1024"},
	} {
		t.Run(c.dpu+", "+c.host, func(t *testing.T) {
			testenv.NoLeaks(t)
			type ended struct {
				status      int
				out, errOut string
			}
			dpu := make(chan ended, 1)
			go func() {
				status, out, errOut := one(t, append(strings.Fields(c.dpu), "-p", "soft0", "--role", "dpu", "--output-json", "-")...)
				dpu <- ended{status, out, errOut}
			}()
			status, out, errOut := one(t, append(strings.Fields(c.host), "-p", "soft0", "--output-json", "-")...)
			other := <-dpu
			if status != 0 || other.status != 0 {
				t.Fatalf("status %d and %d\n%s%s", status, other.status, errOut, other.errOut)
			}
			mine, theirs := results(t, out), results(t, other.out)
			if mine.Sent != theirs.Received || theirs.Sent != mine.Received || mine.Sent != mine.Planned ||
				mine.ReceivedBytes != int64(theirs.Sent*theirs.Size) || !mine.Complete || !theirs.Complete {
				t.Errorf("the host has %+v, the DPU %+v", mine, theirs)
			}
			if mine.TotalMicroseconds <= 0 || mine.SendMicroseconds > mine.TotalMicroseconds || mine.PerMessage <= 0 {
				t.Errorf("times %+v", mine)
			}
			for _, want := range []string{saidConnected, fmt.Sprintf(saidSent, mine.Sent), fmt.Sprintf(saidReceived, mine.Received)} {
				if !strings.Contains(errOut, want) {
					t.Errorf("no %q in\n%s", want, errOut)
				}
			}
		})
	}
}

func results(t *testing.T, out string) result {
	t.Helper()
	_, object, _ := strings.Cut(out, "{")
	var report struct{ Channels []result }
	if err := json.Unmarshal([]byte("{"+object), &report); err != nil || len(report.Channels) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return report.Channels[0]
}

func TestCanonicalAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"0000:03:00.0": "0000:03:00.0", "03:00.0": "0000:03:00.0", "0000:03:00:0": "0000:03:00.0", "AB:1f.7": "0000:ab:1f.7",
		"soft0": "soft0", "": "", "0000:03:00.8": "0000:03:00.8", "3:00.0": "3:00.0",
	} {
		if got := canonical(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

// --role says which end this is; without it -r means the DPU's.
func TestRoles(t *testing.T) {
	for args, want := range map[string]string{"": roleHost, "-r x": roleDPU, "--role dpu": roleDPU, "--role host": roleHost, "-r x --role dpu": roleDPU} {
		parser, p := newParser(false)
		err := parser.Parse(append(strings.Fields(args), "-s", "1", "-n", "1", "-p", "soft0"))
		if err == nil {
			err = p.settle(parser)
		}
		if err != nil || p.role != want {
			t.Errorf("%q: %q, %v; want %q", args, p.role, err, want)
		}
	}
	for _, c := range []struct {
		roles []string
		dpu   int
		err   string
	}{
		{[]string{"", ""}, 0, ""},
		{[]string{"host", "dpu"}, 1, ""},
		{[]string{"", "", "dpu"}, 2, ""},
		{[]string{"dpu", "dpu"}, 0, "ranks 0 and 1 are both the DPU"},
		{[]string{"host", "host"}, 0, "no rank is the DPU"},
	} {
		all := make([]card, len(c.roles))
		for i, role := range c.roles {
			all[i].Role = role
		}
		dpu, err := roles(all)
		if c.err == "" && (err != nil || dpu != c.dpu) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %d, %v; want %d, %q", c.roles, dpu, err, c.dpu, c.err)
		}
	}
}
