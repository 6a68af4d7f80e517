//go:build linux

package dropin_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// between are pairs of programs on two hosts. Programs of libibverbs alone go by GIDs, as with RoCE.
var between = []struct{ server, client string }{
	{"ibv_rc_pingpong -g 0 -p 7001", "ibv_rc_pingpong -g 0 -p 7001 SERVER"},
	{"ibv_uc_pingpong -g 1 -e -p 7001", "ibv_uc_pingpong -g 1 -e -p 7001 SERVER"},
	{"ibv_srq_pingpong -g 1 -p 7001", "ibv_srq_pingpong -g 1 -p 7001 SERVER"},
	{"ib_write_bw -n 200 -p 7001", "ib_write_bw -n 200 -p 7001 SERVER"},
	{"ib_send_lat -c UD -n 200 -p 7001", "ib_send_lat -c UD -n 200 -p 7001 SERVER"},
	{"ib_read_bw -n 200 -p 7001", "ib_read_bw -n 200 -p 7001 SERVER"},
	{"ib_atomic_lat -n 200 -p 7001", "ib_atomic_lat -n 200 -p 7001 SERVER"},
	{"ib_write_bw -R -q 4 -n 200 -p 7001", "ib_write_bw -R -q 4 -n 200 -p 7001 SERVER"},
	{"ib_send_bw -R -c UD -n 200 -p 7001", "ib_send_bw -R -c UD -n 200 -p 7001 SERVER"},
	{"rping -s -C 20 -p 7001", "rping -c -a SERVER -C 20 -V -p 7001"},
	{"ucmatose -c 20 -C 10 -p 7001", "ucmatose -s SERVER -c 20 -C 10 -p 7001"},
	{"udaddy", "udaddy -s SERVER"},
	{"rdma_xserver -p 7001", "rdma_xclient -s SERVER -p 7001"},
	{ucx + "-p 7001 -c 0", ucx + "-p 7001 -t tag_lat -n 500 SERVER"},
}

// A runner makes a command of gorun-verbs on a host, and has what it says.
type runner func(ctx context.Context, host int, words string) (*exec.Cmd, *bytes.Buffer)

// apart is two hosts with gorun-verbs and two keys.
func apart(t *testing.T) (b *testbed.Bed, on runner) {
	t.Helper()
	b = testbed.New(t, 2)
	for name, key := range map[string]string{"key": "the key of these two hosts\n", "other": "a key that is another one\n"} {
		if err := os.WriteFile(filepath.Join(b.Dir, name), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(b.Dir, "bin"), os.DirFS(build(t))); err != nil { // each host has a /tmp of its own
		t.Fatal(err)
	}
	tool := filepath.Join(b.Dir, "bin", "gorun-verbs")
	return b, func(ctx context.Context, host int, words string) (*exec.Cmd, *bytes.Buffer) {
		cmd := b.Hosts[host].Command(ctx, append([]string{tool}, strings.Fields(strings.ReplaceAll(words, "SERVER", b.Hosts[0].Addr))...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}
}

// awaitServer waits until a program of the host listens, by TCP at port 7001, or by librdmacm: then for other hosts at one more
// port than sshd and the device.
func awaitServer(t *testing.T, h *testbed.Host) {
	t.Helper()
	testenv.Await(t, 30*time.Second, "a server on "+h.Name, func() bool {
		at, n := sockets(h, "0A")
		return strings.Contains(at, fmt.Sprintf(":%04X ", 7001)) || n > 2
	})
}

// sockets are those of the host in a state that /proc/net/tcp names by its number, and how many are of IPv4.
func sockets(h *testbed.Host, state string) (at string, n int) {
	for _, file := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", h.PID(), file))
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == state {
				at += f[1] + " "
				if file == "tcp" {
					n++
				}
			}
		}
	}
	return at, n
}

// stop kills what runs on the host: nsenter, which a command is to us, has started it.
func stop(h *testbed.Host) {
	for pid := range h.Processes() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// Programs on two hosts reach each other with a key.
func TestPairsBetweenHosts(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b, on := apart(t)
	const key = "--key key --interface 10.9.0.0/16 --tcp-ports 40000-40100 "
	for _, row := range between {
		t.Run(row.server, func(t *testing.T) {
			tool, _, _ := strings.Cut(strings.TrimPrefix(row.server, "env UCX_NET_DEVICES=soft0:1 UCX_TLS=rc,self "), " ")
			testenv.Need(t, tool)
			well(t, func() (string, error) { return both(t, b, on, key+row.server, key+row.client) })
		})
	}
}

// both runs a server, unless it is "", and then its client, and gives what they said. Where the client fails the server is killed.
func both(t *testing.T, b *testbed.Bed, on runner, serves, asks string) (said string, errs error) {
	t.Helper()
	ctx := testenv.Deadline(t, time.Minute)
	server, text := on(ctx, 0, serves)
	if serves != "" {
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		awaitServer(t, b.Hosts[0])
	}
	client, answered := on(ctx, 1, asks)
	if errs = client.Run(); errs != nil {
		stop(b.Hosts[0])
	}
	if serves != "" {
		if err := server.Wait(); errs == nil {
			errs = err
		}
	}
	return text.String() + answered.String(), errs
}

// What does not come together says why.
func TestTroubleBetweenHosts(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b, on := apart(t)
	testenv.Need(t, "rping")
	testenv.Need(t, "ibv_rc_pingpong")
	for _, row := range []struct{ server, client, says string }{
		{"", "--key key rping -c -a SERVER -p 7001", "RDMA_CM_EVENT_REJECTED, error 8"},
		{"", "rping -c -a SERVER -p 7001", "with gorun-verbs --key"},
		{"--key key rping -s -p 7001", "--key other rping -c -a SERVER -p 7001", "RDMA_CM_EVENT_REJECTED, error 8"}, // it looks elsewhere
		{"--key key ibv_rc_pingpong -g 0 -p 7001", "--key other ibv_rc_pingpong -g 0 -p 7001 SERVER", "the other side does not know the job's secret"},
		{"--key key ibv_rc_pingpong -p 7001", "--key key ibv_rc_pingpong -p 7001 SERVER", "goes by GIDs"},
		{"", "--key key --interface 10.10.0.0/16 ibv_devinfo", "--interface 10.10.0.0/16: no interface here"},
	} {
		t.Run(row.client, func(t *testing.T) {
			if said, err := both(t, b, on, row.server, row.client); err == nil || !strings.Contains(said, row.says) {
				t.Errorf("it ended with %v, want %q\n%s", err, row.says, said)
			}
		})
	}
}

// Who loses its peer while requests are under way, or has a connection of librdmacm's, hears of it.
func TestKilledPeerOnAnotherHost(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b, on := apart(t)
	testenv.Need(t, "ib_write_bw")
	testenv.Need(t, "rping")
	for serves, asks := range map[string]string{"ib_write_bw -D 60 -p 7001": "ib_write_bw -D 60 -p 7001 SERVER", "rping -s -p 7001": "rping -c -a SERVER -p 7001"} {
		ctx := testenv.Deadline(t, time.Minute)
		server, _ := on(ctx, 0, "--key key "+serves)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		awaitServer(t, b.Hosts[0])
		client, said := on(ctx, 1, "--key key "+asks)
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, 30*time.Second, "the connection of the devices, beside the program's or librdmacm's", func() bool {
			_, n := sockets(b.Hosts[1], "01")
			return n > 1
		})
		stop(b.Hosts[0])
		_ = server.Wait()
		if err := client.Wait(); ctx.Err() != nil || strings.Contains(said.String(), "goroutine ") { // rping ends with 0
			t.Errorf("%s: the client of a killed server ended with %v\n%s", asks, err, said)
		}
	}
}
