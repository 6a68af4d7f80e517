//go:build linux

package dropin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/testenv/abicheck"
	_ "github.com/gorun-mpi/gorun/rdma/soft" // what is built below is of it, too: go test is to see when it changes
)

// built has the library, built once for all tests, and gorun-verbs beside it as make build places them.
var built testenv.Made

func TestMain(m *testing.M) {
	status := m.Run()
	built.Remove()
	os.Exit(status)
}

func build(t testing.TB) string {
	t.Helper()
	testenv.Need(t, "gcc")
	// go test looks for changes in what a test opens, and not in what a command that it runs does.
	for _, dir := range []string{"library", "meet", "shim", "cm", "paths", "../../internal/cgoloader"} {
		_, _ = os.ReadDir(dir)
	}
	return built.In(t, func(dir string) error {
		return errors.Join(os.Chmod(dir, 0o755), // for other users
			testenv.Build("../../scripts/build-dropin", filepath.Join(dir, "verbs")), testenv.Build("go", "build", "-o", dir+"/", "../../cmd/gorun-verbs"))
	})
}

// TestConformance holds package verbs, over the drop-in, to the suite of package rdmatest. It needs cgo, which this test
// does not ask for: the suite is a program of its own.
func TestConformance(t *testing.T) {
	dir := build(t)
	suite := filepath.Join(t.TempDir(), "conformance")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-w", "-o", suite, "./conformance")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the suite: %v\n%s", err, out)
	}
	args := []string{"-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd = exec.Command(suite, args...)
	cmd.Env = append(os.Environ(), "GORUN_TEST_DROPIN="+filepath.Join(dir, "verbs", "libibverbs.so.1"), "GORUN_VERBS_FABRIC="+fabric(t))
	out, err := cmd.CombinedOutput()
	if passed := bytes.Count(out, []byte("--- PASS")); err != nil || passed < 200 {
		t.Errorf("%d rules hold, %v\n%s", passed, err, out)
	}
}

// fabric is one that no other test is in.
func fabric(t testing.TB) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name())) // cannot fail
	return fmt.Sprintf("test-%x-%d", h.Sum32(), os.Getpid())
}

// program is a command under gorun-verbs, as user uid.
func program(ctx context.Context, t testing.TB, uid int, words ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	tool := words[0]
	if tool == "env" {
		tool = words[slices.IndexFunc(words[1:], func(w string) bool { return !strings.Contains(w, "=") })+1]
	}
	testenv.Need(t, tool)
	cmd := exec.CommandContext(ctx, filepath.Join(build(t), "gorun-verbs"), append([]string{"--fabric", fabric(t)}, words...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &out, &out, "/", 10*time.Second // what fio has forked lives on without it
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd, &out
}

// users are those whom programs are tried as: this one, and where this is root one without rights.
func users() []int {
	if os.Geteuid() == 0 {
		return []int{0, 65534}
	}
	return []int{os.Geteuid()}
}

func TestDevicesAreListed(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, uid := range users() {
		for words, want := range map[string]string{"ibv_devices": "soft0", "ibv_devinfo -v": "PORT_ACTIVE (4)"} {
			cmd, out := program(testenv.Deadline(t, time.Minute), t, uid, strings.Fields(words)...)
			if err := cmd.Run(); err != nil || !strings.Contains(out.String(), want) {
				t.Errorf("user %d: %s: %v\n%s", uid, words, err, out)
			}
		}
	}
	cmd, out := program(testenv.Deadline(t, time.Minute), t, os.Geteuid(), "ibv_devices")
	cmd.Env = append(os.Environ(), "GORUN_VERBS_DEVICES=mlx5_0,mlx5_1")
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "mlx5_0") || !strings.Contains(out.String(), "mlx5_1") {
		t.Errorf("two devices: %v\n%s", err, out)
	}
}

// pairs are programs that run as a server and, with its address, as a client.
var pairs = []string{
	"ibv_rc_pingpong", "ibv_rc_pingpong -e", "ibv_rc_pingpong -g 0", "ibv_rc_pingpong -t", "ibv_rc_pingpong -o -c", "ibv_rc_pingpong -N -e",
	"ibv_uc_pingpong", "ibv_uc_pingpong -e", "ibv_ud_pingpong", "ibv_ud_pingpong -e", "ibv_srq_pingpong", "ibv_srq_pingpong -e",
	"ibv_xsrq_pingpong", "ibv_xsrq_pingpong -e",
	"ib_write_lat -n 200", "ib_write_lat -c UC -n 200", "ib_write_bw -n 200", "ib_write_bw -q 16 -n 200", "ib_write_bw -b -n 200",
	"ib_send_lat -n 200", "ib_send_lat -c UD -n 200", "ib_send_lat -e -n 50", "ib_send_bw -r 64 -n 200", "ib_read_lat -n 200", "ib_read_bw -n 200",
	"ib_atomic_lat -n 200", "ib_atomic_bw -n 200", "ib_write_lat --odp -n 200", "ib_write_lat -S 0 -I 0 -n 200",
	"ib_write_lat -R -n 200", "ib_write_bw -R -q 4 -n 200", "ib_send_lat -R -e -n 50", "ib_send_bw -R -c UD -n 200", "ib_read_bw -R -n 200",
}

// others have other words for a client.
var others = []struct{ server, client string }{
	{"rping -s -C 20 -p PORT", "rping -c -a 127.0.0.1 -C 20 -V -p PORT"},
	{"rping -s -q -a :: -C 5 -p PORT", "rping -c -a ::1 -C 5 -V -p PORT"},
	{"ucmatose -c 20 -C 10 -p PORT", "ucmatose -s 127.0.0.1 -c 20 -C 10 -p PORT"},
	{"udaddy", "udaddy -s 127.0.0.1"},
	{"rdma_server -p PORT", "rdma_client -s 127.0.0.1 -p PORT"},
	{"rdma_xserver -p PORT", "rdma_xclient -s 127.0.0.1 -p PORT"},
	{"rdma_xserver -c x -p PORT", "rdma_xclient -c x -s 127.0.0.1 -p PORT"},
	{"qperf -lp PORT", "qperf 127.0.0.1 -lp PORT -cm1 -t 1 rc_rdma_write_lat quit"},
	{"fi_pingpong -p verbs -e msg -c -I 100 -B PORT", "fi_pingpong -p verbs -e msg -c -I 100 -P PORT 127.0.0.1"},
	{"fi_pingpong -p verbs -e dgram -c -I 100 -B PORT", "fi_pingpong -p verbs -e dgram -c -I 100 -P PORT 127.0.0.1"},
	{"fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 100 -B PORT", "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 100 -P PORT 127.0.0.1"},
	{ucx + "-p PORT -c 0", ucx + "-p PORT -t tag_lat -n 500 127.0.0.1"},
	{ucx + "-p PORT -c 0", ucx + "-p PORT -t tag_bw -s 1048576 -n 100 127.0.0.1"},
	{ucx + "-p PORT -c 0", ucx + "-p PORT -t ucp_get -n 500 127.0.0.1"},
	{ucx + "-p PORT -c 0", ucx + "-p PORT -t ucp_cswap -n 500 127.0.0.1"},
	{ud + "-p PORT -c 0", ud + "-p PORT -t tag_bw -s 65536 -n 100 127.0.0.1"},
	{"fio --ioengine=rdma --name=a --port=PORT --bs=64k --size=4m --rw=read --iodepth=4", "fio --ioengine=rdma --name=b --port=PORT --hostname=127.0.0.1 --verb=write --bs=64k --size=4m --rw=write --iodepth=4"},
	{"fio --ioengine=rdma --thread --name=a --port=PORT --bs=64k --size=4m --rw=read", "fio --ioengine=rdma --thread --name=b --port=PORT --hostname=127.0.0.1 --verb=write --bs=64k --size=4m --rw=write"},
}

const (
	ucx = "env UCX_NET_DEVICES=soft0:1 UCX_TLS=rc,self ucx_perftest "
	ud  = "env UCX_NET_DEVICES=soft0:1 UCX_TLS=ud,self ucx_perftest "
)

func TestPairs(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	// ibv_xsrq_pingpong makes a file, leaves it, and may not open that of another user.
	forget := func() { _ = os.Remove("/tmp/xrc_domain") }
	forget()
	t.Cleanup(forget)
	rows := slices.Clone(others)
	for _, words := range pairs {
		rows = append(rows, struct{ server, client string }{words + " -p PORT", words + " -p PORT 127.0.0.1"})
	}
	for _, uid := range users() {
		for _, row := range rows {
			t.Run(fmt.Sprintf("%s as %d", strings.TrimSuffix(row.server, " -p PORT"), uid), func(t *testing.T) {
				meet(t, uid, row.server, row.client)
			})
		}
	}
}

// A program that waits for its peer before it ends, as perftest's do and ibv_rc_pingpong does not, gives the same where everything is late, out of
// order and repeated, and where the port goes down; and nothing that it does is what cards punish. (With -R perftest 4.5
// receives into the memory that it sends from.)
func TestPairsInTrouble(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	t.Setenv("GORUN_VERBS_ADVERSE", "7,link")
	for _, words := range []string{"ib_write_bw -x 0 -n 200", "ib_write_bw -x 0 -c UC -n 200", "ib_send_bw -x 0 -n 200", "ib_read_lat -x 0 -n 200",
		"ib_atomic_bw -x 0 -n 200", "ib_write_bw -x 0 -R -n 200"} {
		t.Run(words, func(t *testing.T) {
			if !strings.Contains(words, "-R") {
				t.Setenv("GORUN_VERBS_CHECK", "report")
			}
			meet(t, os.Geteuid(), words+" -p PORT", words+" -p PORT 127.0.0.1")
		})
	}
}

// The script of docs/ci.md passes as it stands.
func TestCIPage(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	testenv.Need(t, "ib_write_bw")
	page, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sh\n")
	script, _, ok := strings.Cut(script, "```\n")
	if !ok {
		t.Fatal("docs/ci.md has no script")
	}
	cmd := exec.CommandContext(testenv.Deadline(t, 2*time.Minute), "sh", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+build(t)+":"+os.Getenv("PATH"), "GORUN_VERBS_FABRIC="+fabric(t))
	if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), "RDMA_Write BW Test") < 8 {
		t.Errorf("%v\n%s", err, out)
	}
}

// Open MPI moves its messages by UCX over the device.
func TestOpenMPIOverUCX(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	testenv.NoLeaks(t)
	ring := filepath.Join(t.TempDir(), "ring")
	if out, err := exec.Command(testenv.Need(t, "mpicc.openmpi"), "-o", ring, "testdata/ring.c").CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v\n%s", err, out)
	}
	for _, way := range []string{"rc", "ud"} {
		cmd, out := program(testenv.Deadline(t, 2*time.Minute), t, os.Geteuid(), "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
			"-x", "UCX_NET_DEVICES=soft0:1", "-x", "UCX_TLS="+way+",self", "-x", "UCX_LOG_LEVEL=info", "-np", "3", ring)
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "sum 3") || !strings.Contains(out.String(), way+"_verbs/soft0:1") {
			t.Errorf("%s: %v\n%s", way, err, out)
		}
	}
}

// noClock is what perftest says, and ends, where other work keeps it from finding out how fast the CPU's clock runs.
const noClock = "Correlation coefficient"

// well runs a server and its client, which are to end well and without a word from gorun-verbs; again where perftest could not begin.
func well(t *testing.T, run func() (said string, err error)) {
	t.Helper()
	var said string
	var err error
	for range 4 {
		if said, err = run(); !strings.Contains(said, noClock) {
			break
		}
	}
	if err != nil || strings.Contains(said, "gorun-verbs:") || strings.Contains(said, "goroutine ") || strings.Contains(said, "invalid data") {
		t.Errorf("they ended with %v, and said\n%s", err, said)
	}
}

func meet(t *testing.T, uid int, serves, asks string) {
	testenv.NoLeaks(t)
	well(t, func() (string, error) { return meetOnce(t, uid, serves, asks) })
}

func meetOnce(t *testing.T, uid int, serves, asks string) (said string, errs error) {
	t.Helper()
	ctx := testenv.Deadline(t, time.Minute)
	port := freePort(t)
	words := func(s string) []string { return strings.Fields(strings.ReplaceAll(s, "PORT", port)) }
	server, out := program(ctx, t, uid, words(serves)...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	listens(t, port)
	client, answer := program(ctx, t, uid, words(asks)...)
	if err := client.Run(); err != nil {
		errs = fmt.Errorf("client: %w", err)
		_ = server.Process.Kill()
	}
	if err := server.Wait(); err != nil && errs == nil {
		errs = fmt.Errorf("server: %w", err)
	}
	return out.String() + answer.String(), errs
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// listens waits until a process listens at the port of TCP, or by librdmacm, without a connection to it, which would be the client's.
func listens(t testing.TB, port string) {
	t.Helper()
	testenv.Await(t, 30*time.Second, "a server at port "+port, func() bool { return isListened(t, port) })
}

func isListened(t testing.TB, port string) bool {
	t.Helper()
	if strings.Contains(names(t), "/"+fabric(t)+"/cm/") {
		return true
	}
	var n int
	fmt.Sscan(port, &n)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); err == nil && len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}

// A server that is killed gives its client a completion with an error, and leaves no name.
func TestKilledPeer(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 2*time.Minute)
	args := []string{"ib_write_bw", "-D", "60", "-u", "10", "-p", freePort(t)}
	server, _ := program(ctx, t, os.Geteuid(), args...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	listens(t, args[len(args)-1])
	client, out := program(ctx, t, os.Geteuid(), append(args, "127.0.0.1")...)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, 30*time.Second, "the client's name", func() bool { return strings.Count(names(t), "/"+fabric(t)+"/") == 2 })
	_ = server.Process.Kill()
	_ = server.Wait()
	if err := client.Wait(); err == nil || strings.Contains(out.String(), "goroutine ") {
		t.Errorf("the client of a killed server ended with %v\n%s", err, out)
	}
	if strings.Contains(names(t), "/"+fabric(t)+"/") {
		t.Errorf("a name is left:\n%s", names(t))
	}
}

// Either side is killed at a random moment, a hundred times: the other ends by itself, unless it waits for a client as it did before
// there was one, and no name is left.
func TestRandomKills(t *testing.T) {
	testenv.Part(t, testenv.Faults)
	testenv.NoLeaks(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	kinds := []struct{ server, client string }{
		{"ib_write_bw -D 60 -p PORT", "ib_write_bw -D 60 -p PORT 127.0.0.1"},
		{"ib_atomic_bw -D 60 -p PORT", "ib_atomic_bw -D 60 -p PORT 127.0.0.1"},
		{"ib_read_bw -R -D 60 -p PORT", "ib_read_bw -R -D 60 -p PORT 127.0.0.1"},
		{"rping -s -p PORT", "rping -c -a 127.0.0.1 -p PORT"},
	} // who only receives, as ib_send_bw's server or a client of ucx_perftest without credit, hears nothing of its peer's death, as with a card
	for i := range 100 {
		kind := kinds[rng.IntN(len(kinds))]
		delay, first := time.Duration(rng.IntN(400))*time.Millisecond, rng.IntN(2)
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(20*time.Second))
		port := freePort(t)
		words := func(s string) []string { return strings.Fields(strings.ReplaceAll(s, "PORT", port)) }
		var sides [2]*exec.Cmd
		var said [2]*bytes.Buffer
		for k, s := range []string{kind.server, kind.client} {
			sides[k], said[k] = program(ctx, t, os.Geteuid(), words(s)...)
			if err := sides[k].Start(); err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				listens(t, port)
			}
		}
		time.Sleep(delay) // the moment of the kill, not a wait for anything
		_ = sides[first].Process.Kill()
		_ = sides[first].Wait()
		ended := make(chan error, 1)
		go func() { ended <- sides[1-first].Wait() }()
		for waits := false; ; {
			select {
			case <-ended:
			case <-time.After(2 * time.Second):
				if !waits && first == 1 && isListened(t, port) {
					waits = true
					_ = sides[0].Process.Kill()
				}
				continue
			}
			break
		}
		if ctx.Err() != nil || strings.Contains(said[1-first].String(), "goroutine ") {
			t.Fatalf("kill %d, after %v: the peer of the killed one hung or crashed: %s, side %d\n%s", i, delay, kind.server, first, said[1-first])
		}
		cancel()
		if left := names(t); strings.Contains(left, "/"+fabric(t)+"/") {
			t.Fatalf("kill %d: a name is left:\n%s", i, left)
		}
	}
}

func names(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The first program of docs/verbs.md, built as the page says, passes as it stands.
func TestFirstProgram(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	dirs := abicheck.Installed(t, "infiniband/verbs.h", "GORUN_TEST_VERBS_HEADERS", "libibverbs-dev", "/usr/include")
	built := filepath.Join(build(t), "writeread")
	if out, err := exec.Command(testenv.Need(t, "gcc"), "-Wall", "-Wextra", "-Werror", "-I"+dirs[0], "-o", built, "../../examples/verbs/writeread.c", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	for _, uid := range users() {
		ctx := testenv.Deadline(t, time.Minute)
		server, said := program(ctx, t, uid, built, "127.0.0.1", "soft0")
		client, answered := program(ctx, t, uid, built, "127.0.0.1", "soft0", "127.0.0.1") // it waits for the server
		if err := errors.Join(server.Start(), client.Run(), server.Wait()); err != nil || said.String()+answered.String() != "written by the client\nread by the server\n" {
			t.Errorf("user %d: they ended with %v, and said\n%s%s", uid, err, said, answered)
		}
	}
	// As ranks, with devices that gorun names.
	launcher, alone := filepath.Join(filepath.Dir(built), "gorun"), filepath.Join(t.TempDir(), "gorun")
	if err := errors.Join(testenv.Build("go", "build", "-o", launcher, "../../cmd/gorun"), os.Link(launcher, alone)); err != nil {
		t.Fatal(err)
	}
	job := exec.CommandContext(testenv.Deadline(t, time.Minute), launcher, "--emulate", "mlx5_0,mlx5_1", "-np", "1", built, "127.0.0.1", "mlx5_1", ":", "-np", "1", built, "127.0.0.1", "mlx5_0", "127.0.0.1")
	if out, err := job.CombinedOutput(); err != nil || string(out) != "written by the client\nread by the server\n" {
		t.Errorf("gorun --emulate: %v\n%s", err, out)
	}
	// alone has no libraries beside it.
	out, err := exec.Command(alone, "--emulate", "mlx5_0", "-np", "1", built, "127.0.0.1", "mlx5_0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--emulate mlx5_0: ") || !strings.Contains(string(out), "is linked with libibverbs.so.1") {
		t.Errorf("gorun --emulate without the library: %v\n%s", err, out)
	}
}
