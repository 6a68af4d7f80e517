package rxe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pingpong is the command of that name, in the guest, with libibverbs.
func pingpong(t *testing.T) {
	t.Helper()
	path := filepath.Join(built, "pingpong")
	if _, err := os.Stat(path); err != nil {
		if out, err := goTool("1", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/pingpong"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := guest(t).Put(path, ""); err != nil {
		t.Fatal(err)
	}
}

// Every transport of the device, between two devices, as server and client and
// as two ranks.
func TestPingPong(t *testing.T) {
	pingpong(t)
	for _, c := range []struct{ args, want string }{
		{"", `server: read 4096 bytes at `},
		{"--op write -s 64", "RDMA write latency, RC on rxe0 (verbs)"},
		{"--op write -s 1000003 -n 3", "RDMA write latency, RC on rxe0 (verbs)"},
		{"--op read", "RDMA read latency, RC on rxe0 (verbs)"},
		{"--op send", "RDMA send latency, RC on rxe0 (verbs)"},
		{"--op write_imm -s 5000 -q 3 -b", "RDMA write_imm latency, RC on rxe0 (verbs)"},
		{"--op send -q 2 -b -I 0", "RDMA send latency, RC on rxe0 (verbs)"},
		{"--op write -a", " 8388608   50 "},
		{"--op atomic", "RDMA atomic latency, RC on rxe0 (verbs)"},
		{"--qp uc --op write", "RDMA write latency, UC on rxe0 (verbs)"},
		{"--qp uc --op send", "RDMA send latency, UC on rxe0 (verbs)"},
		{"--qp ud --op send", "RDMA send latency, UD on rxe0 (verbs)"},
	} {
		t.Run(strings.TrimSpace("rc "+c.args), func(t *testing.T) {
			command := "pingpong -n 50 --timeout 30000 " + c.args
			out := inGuest(t, "sh", "-ec", fmt.Sprintf(`
%[1]s -d rxe1 >server 2>&1 & pid=$!
until netstat -ltn | grep -q ':18515 '; do
	kill -0 $pid || { cat server; exit 1; }
	sleep .05
done
%[1]s -d rxe0 --connect 127.0.0.1
wait $pid || { cat server; exit 1; }
cat server
`, command))
			if !strings.Contains(out, c.want) {
				t.Errorf("no %q in\n%s", c.want, out)
			}
		})
	}
	t.Run("ranks", func(t *testing.T) {
		if out := inGuest(t, "gorun", "-np", "2", "pingpong", "-d", "rxe0", "--op", "send", "-n", "50", "--timeout", "30000"); !strings.Contains(out, "RC on rxe0 (verbs)") {
			t.Error(out)
		}
	})
	t.Run("what the device lacks", func(t *testing.T) {
		out := inGuest(t, "sh", "-c", "gorun -np 2 pingpong -d rxe0 --qp xrc --op send 2>&1; echo status $?")
		if !strings.Contains(out, "rxe0 has no --qp xrc") || !strings.HasSuffix(out, "status 1\n") {
			t.Error(out)
		}
	})
}

// Our end and rdma-core's understand each other, whichever serves.
func TestPingPongPeer(t *testing.T) {
	pingpong(t)
	ours, theirs := "pingpong --peer ibv_rc_pingpong --timeout 30000 -n 100 -d ", "ibv_rc_pingpong -n 100 -d "
	for _, c := range []struct{ name, server, client string }{
		{"serves", theirs + "rxe1 -g 0", ours + "rxe0 -g 0 --connect"},
		{"asks", ours + "rxe1 -g 0", theirs + "rxe0 -g 0"},
		{"other size", theirs + "rxe1 -g 0 -s 65536 -m 2048", ours + "rxe0 -g 0 -s 65536 -m 2048 --connect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out := bothEnds(t, "18515", c.server, c.client); !strings.Contains(out, "100 iters in") {
				t.Error(out)
			}
		})
	}
}
