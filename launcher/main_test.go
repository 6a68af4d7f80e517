package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/agent"
	"github.com/gorun-mpi/gorun/pmi"
)

// The test binary is also the program that its jobs run: "--role NAME ARG...".
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "--role" {
		role, ok := roles[os.Args[2]]
		if !ok {
			fmt.Fprintf(os.Stderr, "no role %q\n", os.Args[2])
			os.Exit(99)
		}
		os.Exit(role(os.Args[3:]))
	}
	if os.Args[0] == "gorun-offload" {
		os.Exit(roleDaemon(os.Getenv("TEST_DAEMON")))
	}
	// With the race detector a process sleeps for a second before it exits.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(m.Run())
}

var roles map[string]func(args []string) int

func init() {
	roles = map[string]func([]string) int{
		"agent":     roleAgent,
		"barriers":  roleBarriers,
		"held":      roleHeld,
		"struck":    roleStruck,
		"lines":     roleLines,
		"mourns":    roleMourns,
		"nowhere":   roleNowhere,
		"pmi":       rolePMI,
		"launcher":  roleLauncher,
		"signalled": roleSignalled,
	}
}

// roleAgent is an agent, or as "--relay N LEASE" a relay of some.
func roleAgent(args []string) int {
	if len(args) == 3 && args[0] == "--relay" {
		atOnce, _ := strconv.Atoi(args[1])
		lease, _ := time.ParseDuration(args[2])
		return agent.Relay(os.Stdin, os.Stdout, os.Environ(), atOnce, lease)
	}
	return agent.Main(context.Background(), os.Stdin, os.Stdout)
}

// roleArgv is the command that plays a role.
func roleArgv(t testing.TB, role string, args ...string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{exe, "--role", role}, args...)
}

// sh is a script as a program.
func sh(script string) []string { return []string{"sh", "-c", script} }

// roleLines writes lines in pieces: LINES PIECES.
func roleLines(args []string) int {
	lines, _ := strconv.Atoi(args[0])
	pieces, _ := strconv.Atoi(args[1])
	rank := os.Getenv("PMI_RANK")
	for i := range lines {
		for k := range pieces {
			piece := fmt.Sprintf("<%s:%d:%d>%s", rank, i, k, strings.Repeat(rank, 30))
			if k == pieces-1 {
				piece += "\n"
			}
			os.Stdout.WriteString(piece)
		}
	}
	return 0
}

// await waits for what sends no event, no longer than a role lives.
func await(holds func() bool) error {
	if !testenv.Holds(30*time.Second, holds) {
		return context.DeadlineExceeded
	}
	return nil
}

// rolePMI is a rank that does with PMI what its arguments say, in order.
func rolePMI(args []string) int {
	env, found, err := pmi.FromEnviron(os.Environ())
	if err != nil || !found {
		fmt.Fprintln(os.Stderr, "no PMI:", err)
		return 90
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(30*time.Second))
	defer cancel()
	only, client := false, (*pmi.Client)(nil)
	for _, a := range args {
		if only { // "@N": the next step is rank N's only
			only = false
			continue
		}
		if at, ok := strings.CutPrefix(a, "@"); ok {
			only = at != strconv.Itoa(env.Rank)
			continue
		}
		verb, value, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		err = nil
		switch verb {
		case "init":
			client, err = pmi.Dial(env)
		case "raw":
			_, err = syscall.Write(env.FD, []byte(value+"\n"))
		case "barrier":
			err = client.Barrier(ctx)
		case "cards":
			card := bytes.Repeat([]byte{byte(env.Rank)}, n)
			var all [][]byte
			if all, err = client.AllGather(ctx, card); err == nil {
				for r, c := range all {
					if len(all) != env.Size || len(c) != n || n > 0 && (c[0] != byte(r) || c[n-1] != byte(r)) {
						fmt.Fprintf(os.Stderr, "card of rank %d: %d bytes of %d ranks\n", r, len(c), len(all))
						return 91
					}
				}
			}
		case "appnum":
			var app int
			if app, _, err = client.AppNum(ctx); err == nil {
				fmt.Printf("%d: appnum %d\n", env.Rank, app)
			}
		case "size":
			fmt.Printf("%d/%d\n", client.Rank(), client.Size())
		case "universe":
			if n, _, err = client.Universe(ctx); err == nil {
				fmt.Println("universe", n)
			}
		case "get":
			if value, err = client.Get(value); err == nil {
				fmt.Printf("%d: %s=%s\n", env.Rank, a[len("get="):], value)
			}
		case "put":
			key, value, _ := strings.Cut(value, "=")
			err = client.Put(key, value)
		case "none":
			if _, err = client.Get(value); errors.Is(err, pmi.ErrNotFound) {
				err = nil
			} else {
				err = fmt.Errorf("it is there: %v", err)
			}
		case "map": // a file, as a library is
			err = mapFile(value)
		case "touch":
			err = os.WriteFile(value, nil, 0o600)
		case "await": // a file
			err = await(func() bool { _, missing := os.Stat(value); return missing == nil })
		case "cpus": // that it may use
			status, _ := os.ReadFile("/proc/self/status")
			_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
			list, _, _ = strings.Cut(list, "\n")
			fmt.Println(value, list)
		case "child": // that has inherited the connection, and is through with it
			child := exec.Command("sh", "-c", `echo cmd=finalize >&3; until read -r answer <&3 2>/dev/null; do :; done; test "$answer" = cmd=finalize_ack`) // the socket does not block
			child.Stderr, child.ExtraFiles = os.Stderr, []*os.File{os.NewFile(uintptr(env.FD), "PMI")}
			err = child.Run()
		case "helper": // a second connection beside the first
			if _, second := pmi.Dial(env); second == nil {
				err = errors.New("it is let in")
			}
		case "spawn":
			err = roleSpawn(ctx, client, value)
		case "publish":
			service, port, _ := strings.Cut(value, "=")
			if err := client.Publish(ctx, service, port); err != nil {
				fmt.Printf("%s: not published: %v\n", port, err)
			}
		case "lookup":
			port, err := client.Lookup(ctx, value)
			if err != nil {
				fmt.Printf("%s is not there: %v\n", value, err)
			} else {
				fmt.Printf("%s is %s\n", value, port)
			}
		case "launcher-fds": // until the launcher has at most so many
			err = await(func() bool {
				open, err := os.ReadDir("/proc/" + strconv.Itoa(os.Getppid()) + "/fd")
				return err == nil && len(open) <= n
			})
		case "abort":
			client.Abort(n, "")
			time.Sleep(10 * time.Second)
		case "finalize":
			err = client.Finalize()
		case "exit":
			os.Exit(n)
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
			select {}
		case "sleep":
			time.Sleep(time.Duration(n) * time.Millisecond)
		case "say":
			fmt.Println(value)
		case "env":
			fmt.Printf("%s=%s\n", value, os.Getenv(value))
		default:
			fmt.Fprintf(os.Stderr, "no step %q\n", a)
			return 92
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", a, err)
			return 93
		}
	}
	return 0
}

// roleSpawn spawns N|PROGRAM|ARGS|KEY=VALUE|...: arguments of "self", a rank
// that plays rolePMI, are separated by blanks, others by commas. In an argument
// of self, ~ stands for | and + for a blank.
func roleSpawn(ctx context.Context, client *pmi.Client, what string) error {
	words := strings.Split(what, "|")
	n, _ := strconv.Atoi(words[0])
	app := pmi.SpawnApp{Program: words[1], N: n}
	switch {
	case words[1] == "self":
		app.Program = os.Args[0]
		app.Args = append([]string{"--role", "pmi"}, strings.Fields(words[2])...)
		for i, a := range app.Args {
			app.Args[i] = strings.NewReplacer("~", "|", "+", " ").Replace(a)
		}
	case words[2] != "":
		app.Args = strings.Split(words[2], ",")
	}
	for _, w := range words[3:] {
		key, value, _ := strings.Cut(w, "=")
		app.Info = append(app.Info, [2]string{key, value})
	}
	codes, err := client.Spawn(ctx, []pmi.SpawnApp{app}, map[string]string{"PARENT": "a port$"})
	switch {
	case errors.Is(err, pmi.ErrRefused):
		fmt.Println("not spawned:", err)
		return nil
	case err == nil:
		fmt.Println("spawned", codes)
	}
	return err
}

// roleLauncher runs a job: a Job in JSON, without its streams.
func roleLauncher(args []string) int {
	var job Job
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 94
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1)
	job.Stdin, job.Stdout, job.Stderr, job.Signals = os.Stdin, os.Stdout, os.Stderr, signals
	r, err := Run(context.Background(), job)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if r.Cause != nil && !r.Cause.Quiet() {
		fmt.Fprintln(os.Stderr, r.Cause)
	}
	return r.ExitStatus
}

// roleSignalled says when it is ready and which signals come; USR1 ends it.
func roleSignalled([]string) int {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGTSTP)
	fmt.Println("ready")
	for s := range c {
		fmt.Println(s)
		if s == syscall.SIGUSR1 {
			return 0
		}
	}
	return 0
}

// A way to run a job's ranks.
type way struct {
	name  string
	hosts int // of a forked agent each; 0: in this process
}

var ways = []way{{"here", 0}, {"agents", 2}}

// waysOf are the ways of one case of many: with -short one of them, by its name.
func waysOf(name string) []way {
	if !testing.Short() {
		return ways
	}
	at := int(crc32.ChecksumIEEE([]byte(name))) % len(ways)
	return ways[at : at+1]
}

// overAgents lets a job run on hosts a, b, ... of agents of this binary.
func overAgents(t testing.TB, job *Job, hosts int) {
	t.Helper()
	if hosts == 0 {
		return
	}
	job.Agents.Launcher, job.Agents.Command = "fork", roleArgv(t, "agent")
	for i := range hosts {
		job.Hosts = append(job.Hosts, Host{Name: string(rune('a' + i)), Slots: (job.NP + hosts - 1) / hosts})
	}
}

// buffer is what a job wrote.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
	on map[string]chan struct{} // closed when the text has been written
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Write(p)
	for text, c := range b.on {
		if strings.Contains(b.b.String(), text) {
			close(c)
			delete(b.on, text)
		}
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// await is closed when text has been written.
func (b *buffer) await(text string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{})
	if strings.Contains(b.b.String(), text) {
		close(c)
		return c
	}
	if b.on == nil {
		b.on = make(map[string]chan struct{})
	}
	b.on[text] = c
	return c
}

// runJob runs a job within the time that any test's job may take, and returns
// what it wrote.
func runJob(t *testing.T, job Job) (r Result, stdout, stderr string, err error) {
	t.Helper()
	var out, errs buffer
	if job.Stdout == nil {
		job.Stdout = &out
	}
	if job.Stderr == nil {
		job.Stderr = &errs
	}
	if job.Agents.Timeout == 0 { // a test of hosts that are silent sets it; agents of the others wait for a CPU, too
		job.Agents.Timeout = testenv.Limit(20 * time.Second)
	}
	ctx := testenv.Deadline(t, 60*time.Second)
	r, err = Run(ctx, job)
	if ctx.Err() != nil {
		t.Fatalf("the job took too long; it wrote %q and %q", out.String(), errs.String())
	}
	return r, out.String(), errs.String(), err
}
