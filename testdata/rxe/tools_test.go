package rxe

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// rdma-core's own programs: what runs here is a real stack.

func TestDevices(t *testing.T) {
	out := inGuest(t, "ibv_devinfo", "-v")
	for _, device := range []string{"rxe0", "rxe1"} {
		_, of, _ := strings.Cut(out, "hca_id:\t"+device)
		of, _, _ = strings.Cut(of, "hca_id:")
		for _, want := range []string{`state:\s+PORT_ACTIVE`, `active_mtu:\s+4096`, `GID\[ *0\]:\s+fe80:`, `GID\[ *1\]:\s+::ffff:10\.7\.`, `atomic_cap:\s+ATOMIC_HCA`} {
			if !regexp.MustCompile(want).MatchString(of) {
				t.Errorf("%s has no %s:\n%s", device, want, out)
			}
		}
	}
}

// bothEnds runs a program of rdma-core as two processes, the second one with
// the address of the first, when that one listens.
func bothEnds(t *testing.T, port, server, client string) string {
	t.Helper()
	return inGuest(t, "sh", "-ec", fmt.Sprintf(`
%[2]s >server 2>&1 & pid=$!
until netstat -ltn | grep -q ':%[1]s '; do
	kill -0 $pid || { cat server; exit 1; }
	sleep .05
done
%[3]s 127.0.0.1
wait $pid || { cat server; exit 1; }
`, port, server, client))
}

func TestPingPongs(t *testing.T) {
	for _, c := range []struct{ program, from, to, gid string }{
		{"rc", "rxe0", "rxe0", "0"}, {"rc", "rxe0", "rxe0", "1"}, {"rc", "rxe0", "rxe1", "0"}, {"rc", "rxe1", "rxe0", "0"},
		{"uc", "rxe0", "rxe1", "0"}, {"ud", "rxe0", "rxe1", "0"}, {"srq", "rxe0", "rxe1", "0"},
	} {
		t.Run(c.program+" "+c.from+" "+c.to+" gid "+c.gid, func(t *testing.T) {
			command := "ibv_" + c.program + "_pingpong -n 100 -c -g " + c.gid + " -d "
			if c.program == "ud" || c.program == "srq" {
				command = strings.Replace(command, " -c", "", 1)
			}
			if out := bothEnds(t, "18515", command+c.to, command+c.from); !strings.Contains(out, "100 iters in") {
				t.Error(out)
			}
		})
	}
}

func TestPerftest(t *testing.T) {
	for _, program := range []string{"ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"} {
		t.Run(program, func(t *testing.T) {
			command := program + " -d rxe0 -x 1 -n 100"
			if out := bothEnds(t, "18515", command, command); !regexp.MustCompile(`(?m)^ *[28] +100 +[0-9.]+`).MatchString(out) {
				t.Error(out)
			}
		})
	}
}

func TestConnectionManager(t *testing.T) {
	out := inGuest(t, "sh", "-ec", `
rping -s -a 10.7.0.1 -C 10 -P >server 2>&1 & pid=$!
until out=$(rping -c -a 10.7.0.1 -C 10 -v 2>&1); do kill -0 $pid; sleep .05; done
echo "$out"
kill $pid`)
	if !strings.Contains(out, "rdma-ping-9") {
		t.Error(out)
	}
}
