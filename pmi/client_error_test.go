package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi/pmitest"
)

// scripted is a server that answers each line with what answers has for it, or
// hangs up on "hang up"; lines without an answer wait for ever.
func scripted(t *testing.T, answers map[string]string) Env {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fds[0], true)
	sock := os.NewFile(uintptr(fds[0]), "server")
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(sock)
		for lines.Scan() {
			m, err := ParseLine(lines.Bytes())
			if err != nil {
				t.Errorf("the client says %q: %v", lines.Text(), err)
				return
			}
			answer, ok := answers[m.Cmd()]
			switch {
			case answer == "hang up":
				sock.Close()
				return
			case ok:
				sock.WriteString(answer)
			}
		}
	}()
	t.Cleanup(func() {
		sock.Close()
		<-done
	})
	return Env{FD: fds[1], Rank: 0, Size: 2, Cards: true}
}

// start-up answers, to be changed in parts.
func answers(changed ...string) map[string]string {
	a := map[string]string{
		"init":           "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
		"get_maxes":      "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
		"get_my_kvsname": "cmd=my_kvsname kvsname=k\n",
		"finalize":       "cmd=finalize_ack\n",
	}
	for i := 0; i < len(changed); i += 2 {
		a[changed[i]] = changed[i+1]
	}
	return a
}

func TestDialErrors(t *testing.T) {
	cases := map[string]struct {
		answers map[string]string
		kind    error
		want    string
	}{
		"gone":            {answers("init", "hang up"), ErrServer, "PMI_FD="},
		"refused":         {answers("init", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n"), ErrRefused, "rc=-1"},
		"another answer":  {answers("get_maxes", "cmd=my_kvsname kvsname=k\n"), ErrSyntax, "want cmd=maxes"},
		"no line":         {answers("init", "HTTP/1.1 400 Bad Request\r\n"), ErrSyntax, "HTTP"},
		"endless line":    {answers("init", strings.Repeat("x", LineMax+1)), ErrLine, "8192"},
		"no name":         {answers("get_my_kvsname", "cmd=my_kvsname\n"), ErrSyntax, "my_kvsname"},
		"gone in mid-way": {answers("get_my_kvsname", "hang up"), ErrServer, ""},
	}
	// With a gorun launcher the first request has the greeting's error, and all after it.
	dial := func(ctx context.Context, env Env) error {
		client, err := DialContext(ctx, env)
		if err != nil {
			return err
		}
		defer client.Close()
		if !env.Cards {
			return nil
		}
		if err = client.Barrier(ctx); err != nil && ctx.Err() == nil {
			if again := client.Put("k", "v"); again == nil {
				t.Error("a put went well after a greeting that had failed")
			}
		}
		return err
	}
	for _, cards := range []bool{false, true} {
		prefix := map[bool]string{false: "at once: ", true: "at the first request: "}[cards]
		for name, c := range cases {
			t.Run(prefix+name, func(t *testing.T) {
				testenv.NoLeaks(t)
				env := scripted(t, c.answers)
				env.Cards = cards
				if err := dial(context.Background(), env); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %v with %q", err, c.kind, c.want)
				}
			})
		}
		t.Run(prefix+"silent", func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx, cancel := context.WithCancel(context.Background())
			env := scripted(t, map[string]string{})
			env.Cards = cards
			done := make(chan error)
			go func() { done <- dial(ctx, env) }()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		})
	}
	t.Run("no socket", func(t *testing.T) {
		testenv.NoLeaks(t)
		if _, err := Dial(Env{FD: 999, Rank: 0, Size: 1}); err == nil || !strings.Contains(err.Error(), "PMI_FD=999 is not a socket") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no server", func(t *testing.T) {
		testenv.NoLeaks(t)
		if _, err := Dial(Env{FD: -1, Rank: -1, Port: "127.0.0.1:1", ID: "0"}); err == nil || !strings.Contains(err.Error(), "PMI_PORT=127.0.0.1:1") {
			t.Errorf("got %v", err)
		}
	})
}

func TestCallErrors(t *testing.T) {
	ctx := context.Background()
	cases := map[string]struct {
		answers map[string]string
		call    func(c *Client) error
		kind    error
		want    string
	}{
		"long key":         {answers(), func(c *Client) error { return c.Put(strings.Repeat("k", 65), "v") }, ErrLimit, "65 bytes"},
		"long value":       {answers(), func(c *Client) error { return c.Put("k", strings.Repeat("v", 1025)) }, ErrLimit, `"k"`},
		"newline":          {answers(), func(c *Client) error { return c.Put("k", "a\nb") }, ErrSyntax, `"k"`},
		"key with a blank": {answers(), func(c *Client) error { return c.Put("a b", "v") }, ErrSyntax, "a b"},
		"get a blank":      {answers(), func(c *Client) error { _, err := c.Get("a b"); return err }, ErrSyntax, "a b"},
		"put refused":      {answers("put", "cmd=put_result rc=-1 msg=full\n"), func(c *Client) error { return c.Put("k", "v") }, ErrRefused, "full"},
		"no such key":      {answers("get", "cmd=get_result rc=-1 msg=key_k_not_found value=unknown\n"), func(c *Client) error { _, err := c.Get("k"); return err }, ErrNotFound, "key_k_not_found"},
		"gone in barrier":  {answers("barrier_in", "hang up"), func(c *Client) error { return c.Barrier(ctx) }, ErrServer, "barrier"},
		"big card":         {answers(), func(c *Client) error { _, err := c.AllGather(ctx, make([]byte, CardMax+1)); return err }, ErrLimit, "65537"},
		"gather fails":     {answers("gorun_allgather", "cmd=gorun_allgather_result rc=-1 value=rank 1: left size=0\n"), func(c *Client) error { _, err := c.AllGather(ctx, nil); return err }, ErrRefused, "rank 1: left size=0"},
		"gather of few":    {answers("gorun_allgather", "cmd=gorun_allgather_result rc=0 size=1\n\x90"), func(c *Client) error { _, err := c.AllGather(ctx, nil); return err }, pack.ErrDamaged, "want 2"},
		"gather damaged":   {answers("gorun_allgather", "cmd=gorun_allgather_result rc=0 size=3\nabc"), func(c *Client) error { _, err := c.AllGather(ctx, nil); return err }, pack.ErrDamaged, "want 2"},
		"gather too big":   {answers("gorun_allgather", "cmd=gorun_allgather_result rc=0 size=99999999\n"), func(c *Client) error { _, err := c.AllGather(ctx, nil); return err }, ErrSyntax, "size=99999999"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			client, err := Dial(scripted(t, c.answers))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := c.call(client); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.want)
			}
		})
	}
}

func TestCloseEndsBlockedCall(t *testing.T) {
	testenv.NoLeaks(t)
	c, err := Dial(scripted(t, answers()))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- c.Barrier(context.Background()) }()
	if err := c.Abort(3, "x\ny"); err != nil { // beside a blocked call
		t.Error(err)
	}
	c.Close()
	if err := <-done; err == nil {
		t.Error("the barrier ends without an error")
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := c.Put("k", "v"); err == nil {
		t.Error("put after Close: no error")
	}
}

// After an unfinished call the dialogue is out of step: nothing more is said.
func TestUnfinishedCallEndsClient(t *testing.T) {
	testenv.NoLeaks(t)
	c, err := Dial(scripted(t, answers()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := c.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Get("k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get after that: %v, want the first error", err)
	}
	if err := c.Finalize(); err == nil {
		t.Error("finalize after that: no error")
	}
}

// A hooked context counts who waits for its end at a time.
type hooked struct {
	context.Context
	done      chan struct{}
	now, most int
}

func (h *hooked) Done() <-chan struct{} { return h.done }

func (h *hooked) AfterFunc(func()) (stop func() bool) {
	h.now++
	h.most = max(h.most, h.now)
	return func() bool {
		h.now--
		return true
	}
}

// The first request, which reads the greeting's answers on its way, watches its context once: an end in the middle
// of the greeting was taken back with the greeting, and the request then waited for ever.
func TestContextEndsDuringGreeting(t *testing.T) {
	testenv.NoLeaks(t)
	c, err := Dial(scripted(t, answers("barrier_in", "cmd=barrier_out\n")))
	if err != nil {
		t.Fatal(err)
	}
	ctx := &hooked{Context: context.Background(), done: make(chan struct{})}
	if err := c.Barrier(ctx); err != nil || ctx.most != 1 || ctx.now != 0 {
		t.Errorf("got %v; %d hooks at a time, %d left", err, ctx.most, ctx.now)
	}
	if err := c.Finalize(); err != nil {
		t.Error(err)
	}
}

// A context that has ended before a call leaves the client as it was.
func TestEndedContextLeavesClient(t *testing.T) {
	testenv.NoLeaks(t)
	c, err := Dial(scripted(t, answers()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Barrier(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := c.Finalize(); err != nil {
		t.Errorf("finalize: %v", err)
	}
}

func TestRankDiesInMidFence(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	j := newTestJob(t, []int{0, 0, 1}, pmitest.Stores(2))
	waiting := make(chan error, 2)
	for _, r := range []int{0, 1} {
		c, err := Dial(j.envs[r])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, err := c.AllGather(ctx, []byte(fmt.Sprint(r)))
			waiting <- err
		}()
	}
	c, err := Dial(j.envs[2])
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range 2 {
		if err := <-waiting; !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "rank 2") {
			t.Errorf("got %v, want one that names rank 2", err)
		}
	}
	if v := j.violation(ctx); v.Rank != 2 {
		t.Errorf("first violation %v, want rank 2", v.Err)
	}
}

// A context may end in the very moment in which the answer comes: the client
// stays usable then.
func TestContextEndsWithAnswer(t *testing.T) {
	testenv.NoLeaks(t)
	c, err := Dial(scripted(t, answers("barrier_in", "cmd=barrier_out\n", "get", "cmd=get_result rc=0 value=v\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 200 {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		if err := c.Barrier(ctx); err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if c.err != nil {
				return // it ended in mid-call, which ends the client
			}
			continue
		}
		<-ctx.Done()
		if _, err := c.Get("k"); err != nil {
			t.Fatalf("after a barrier that went well: %v", err)
		}
	}
}

// Hydra writes found= behind the value since MPICH 4.1, and rc= before or not at all; a value
// from gorun is its own to the end of the line.
func TestGetUnderOtherServers(t *testing.T) {
	testenv.NoLeaks(t)
	for name, c := range map[string]struct {
		answer string
		cards  bool
		want   string
		err    error
	}{
		"Hydra 4.0":           {"cmd=get_result rc=0 msg=success value=1:0a1b\n", false, "1:0a1b", nil},
		"Hydra 4.2":           {"cmd=get_result value=1:0a1b found=TRUE\n", false, "1:0a1b", nil},
		"Hydra 4.2, blanks":   {"cmd=get_result value=a b c found=TRUE\n", false, "a b c", nil},
		"Hydra 4.2, not put":  {"cmd=get_result rc=1 msg=key_not_found\n", false, "", ErrNotFound},
		"found=FALSE":         {"cmd=get_result value=unknown found=FALSE\n", false, "", ErrNotFound},
		"no value":            {"cmd=get_result rc=0 msg=success\n", false, "", ErrNotFound},
		"gorun, such a value": {"cmd=get_result rc=0 msg=success value=a found=TRUE\n", true, "a found=TRUE", nil},
	} {
		t.Run(name, func(t *testing.T) {
			env := scripted(t, answers("get", c.answer))
			env.Cards = c.cards
			client, err := Dial(env)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if got, err := client.Get("k"); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}
