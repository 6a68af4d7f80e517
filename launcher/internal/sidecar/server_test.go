package sidecar

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The test binary is also the helper that the tests start, in several characters.
func TestMain(m *testing.M) {
	if how := os.Getenv("SIDECAR_HELPER"); how != "" {
		os.Exit(helper(how))
	}
	os.Exit(m.Run())
}

func helper(how string) int {
	control := os.NewFile(link.ControlFD, "control")
	var in link.Decoder
	buf := make([]byte, 1<<10)
	next := func() link.Message {
		for {
			m, ok, err := in.Next()
			if err != nil {
				os.Exit(9)
			}
			if ok {
				return m
			}
			n, err := control.Read(buf)
			if err != nil {
				os.Exit(0)
			}
			in.Add(buf[:n])
		}
	}
	send := func(m link.Message) {
		b, _ := link.Append(nil, &m)
		_, _ = control.Write(b)
	}
	first := next()
	switch how {
	case "dies":
		fmt.Fprintln(os.Stderr, "out of luck")
		return 3
	case "never ready":
		time.Sleep(time.Hour) // select {} is a deadlock, which Go reports where no signal is watched
	case "nonsense":
		_, _ = control.Write([]byte{0xff, 0xff, 0xff, 0xff})
		time.Sleep(time.Hour) // select {} is a deadlock, which Go reports where no signal is watched
	case "fails":
		send(link.Message{Kind: link.Failed, Text: "no library"})
		time.Sleep(time.Hour) // select {} is a deadlock, which Go reports where no signal is watched
	}
	send(link.Message{Kind: link.Ready})
	if how == "deaf" {
		time.Sleep(time.Hour) // select {} is a deadlock, which Go reports where no signal is watched
	}
	switch how {
	case "stopped":
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		time.Sleep(time.Hour) // where another thread takes the signal, this one goes on for a moment
	case "spins":
		for start := time.Now(); time.Since(start) < time.Hour; {
		}
	case "slow":
		// Some ten pings long, and behind it all answers.
		for start := time.Now(); time.Since(start) < 2*time.Second; {
		}
	}
	// It asks for what it was told, and does what it is asked for.
	p := link.Proc{Space: first.Server.Space.Name, Rank: 1}
	send(link.Message{Kind: link.Joined, Proc: p})
	send(link.Message{Kind: link.Ask, Op: link.Lookup, ID: 7, Keys: []string{first.Server.Dir, first.Server.Host}})
	for {
		switch m := next(); m.Kind {
		case link.Setup:
			send(link.Message{Kind: link.Ready, ID: m.ID})
			send(link.Message{Kind: link.Joined, Proc: link.Proc{Space: m.Server.Space.Name}})
		case link.Answer:
			send(link.Message{Kind: link.Abort, Proc: p, Status: int(m.ID), Text: m.Text})
			send(link.Message{Kind: link.Left, Proc: p})
		case link.Ping:
			if m.Wait && how == "deaf at last" {
				continue
			}
			if m.Wait {
				send(link.Message{Kind: link.Log, Proc: p, Sort: 2, Text: "last words"})
			}
			send(link.Message{Kind: link.Pong, ID: m.ID})
		}
	}
}

// served is a server whose helper has a character, and what it told.
type served struct {
	*Server
	told chan string
}

func serve(t *testing.T, how string, patience time.Duration) *served {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if how == "missing" {
		self = filepath.Join(t.TempDir(), "gorun-pmix")
	}
	told := make(chan string, 100)
	s, err := Listen(Config{
		Program: self, Env: func() []string { return []string{"SIDECAR_HELPER=" + how} },
		Host: "here", Dir: filepath.Join(t.TempDir(), "job"), Patience: patience,
		Failed: func(text string) { told <- "failed: " + text },
		Ask: func(data []byte) {
			m, err := link.Unpack(data)
			told <- fmt.Sprint("ask ", m.ID, m.Keys, err)
		},
		Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	u := &served{s, told}
	s.Add(link.Space{Name: "first"}, u.user())
	t.Cleanup(s.Close)
	return u
}

// user tells what it is told.
func (s *served) user() User {
	return User{
		Joined: func(p link.Proc, _ Way) { s.told <- fmt.Sprintf("joined %s.%d", p.Space, p.Rank) },
		Left:   func(p link.Proc) { s.told <- fmt.Sprintf("left %s.%d", p.Space, p.Rank) },
		Abort: func(p link.Proc, status int, text string) {
			s.told <- fmt.Sprintf("abort %s.%d %d %s", p.Space, p.Rank, status, text)
		},
		Say: func(p link.Proc, stream int, text string) { s.told <- fmt.Sprintf("say %d %s", stream, text) },
	}
}

// connect is a rank that connects; nil when it is sent away at once.
func (s *served) connect(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port()))
	if err != nil {
		t.Log(err)
		return nil
	}
	t.Cleanup(func() { c.Close() })
	s.Begin() // as the host's loop does
	return c
}

func (s *served) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.told:
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	case <-time.After(testenv.Limit(20 * time.Second)):
		t.Fatalf("nothing was told, want %q", want)
	}
}

func TestNobodyConnects(t *testing.T) {
	testenv.NoLeaks(t)
	s := serve(t, "serves", 0)
	if !s.Idle() {
		t.Error("it is not idle")
	}
	if got := s.State(link.Proc{Space: "first"}); got != (Count{}) {
		t.Errorf("got %+v", got)
	}
	s.Close()
	s.Close()
	if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port())); err == nil {
		t.Error("the port is open after Close")
	}
}

// Another user who connects is sent away, and starts nothing.
func TestStrangersStartNoHelper(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Unsupported(t, "only root can be somebody else too")
	}
	bash := testenv.Need(t, "bash")
	testenv.NoLeaks(t)
	s := serve(t, "serves", 10*time.Second)
	s.Begin() // somebody connects, says the host's loop
	for range 3 {
		stranger := exec.Command(bash, "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read -t 20 -u 3; echo $?", s.Port()))
		stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		stranger.Dir = "/"
		if out, err := stranger.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "1\n") {
			t.Errorf("the stranger: %v, %q, want its connection to end at once (1)", err, out)
		}
	}
	if !s.Idle() {
		t.Error("a stranger has started the helper")
	}
	if s.connect(t) == nil {
		t.FailNow()
	}
	s.want(t, "joined first.1")
}

// A child that is the rank a second time is no program of the rank's, however it ends.
func TestChildrenDoNotCount(t *testing.T) {
	for _, c := range []struct {
		frames string // join, child, leave
		told   string
		want   Count
	}{
		{"j l", "first left", Count{Joined: 1, Left: 1}},
		{"j l j", "first left first", Count{Joined: 2, Left: 1}},
		{"j j", "first late", Count{Joined: 2}},
		{"j c", "first second", Count{Joined: 1}},
		{"j c l l", "first second left", Count{Joined: 1, Left: 1}},
		{"j c l c l l j l", "first second left second first left", Count{Joined: 2, Left: 2}},
		{"j c l l j", "first second left first", Count{Joined: 2, Left: 1}},
		{"c l", "first left", Count{Joined: 1, Left: 1}},
	} {
		var told []string
		s := &Server{count: map[link.Proc]*Count{}, users: map[string]User{"": {
			Joined: func(_ link.Proc, way Way) { told = append(told, []string{"first", "second", "late"}[way]) },
			Left:   func(link.Proc) { told = append(told, "left") },
		}}}
		for word := range strings.FieldsSeq(c.frames) {
			kind := link.Joined
			if word == "l" {
				kind = link.Left
			}
			s.told(link.Message{Kind: kind, Wait: word == "c"})
		}
		if got := strings.Join(told, " "); got != c.told || *s.count[link.Proc{}] != c.want {
			t.Errorf("%s: told %q, %+v, want %q, %+v", c.frames, got, *s.count[link.Proc{}], c.told, c.want)
		}
	}
}

func TestServes(t *testing.T) {
	testenv.NoLeaks(t)
	s := serve(t, "serves", 10*time.Second)
	if s.connect(t) == nil {
		t.FailNow()
	}
	p := link.Proc{Space: "first", Rank: 1}
	s.want(t, "joined first.1")
	s.want(t, "ask 7 ["+s.Dir()+" here] <nil>")
	if s.Idle() || s.State(p) != (Count{Joined: 1}) {
		t.Errorf("got %+v", s.State(p))
	}
	s.Add(link.Space{Name: "second"}, s.user())
	s.want(t, "joined second.0")
	s.Spawned(5, "world", "")
	s.want(t, "abort first.1 5 world")
	s.want(t, "left first.1")
	if got := s.State(p); got != (Count{Joined: 1, Left: 1, Aborted: true}) {
		t.Errorf("got %+v", got)
	}
	s.Close()
	select {
	case got := <-s.told:
		t.Errorf("an orderly end tells %q", got)
	default:
	}
}

// A namespace that is added is registered before Add returns, and what comes of one that was removed is told to nobody.
func TestSeveralNamespaces(t *testing.T) {
	testenv.NoLeaks(t)
	s := serve(t, "serves", 10*time.Second)
	s.Add(link.Space{Name: "early"}, s.user()) // with the first one
	if s.connect(t) == nil {
		t.FailNow()
	}
	s.want(t, "joined first.1")
	s.want(t, "ask 7 ")
	s.want(t, "joined early.0")
	s.Add(link.Space{Name: "second"}, s.user())
	p := link.Proc{Space: "second"}
	s.mu.Lock()
	waits := len(s.waits)
	s.mu.Unlock()
	if waits != 0 {
		t.Errorf("Add has returned without the helper's answer: %d waits", waits)
	}
	s.want(t, "joined second.0")
	s.Remove("second")
	s.mu.Lock()
	s.Server.told(link.Message{Kind: link.Left, Proc: p}) // which was on its way
	s.mu.Unlock()
	if got := s.State(p); got != (Count{}) || len(s.told) > 0 {
		t.Errorf("removed: got %+v, and %d were told", got, len(s.told))
	}
}

func TestServerGivesFailingHelpersUp(t *testing.T) {
	for how, want := range map[string]string{
		"missing":     "gorun-pmix does not exist: build it with make build",
		"dies":        "exited with status 3: out of luck",
		"never ready": "was not ready within 200ms",
		"deaf":        "has not answered for 3s",
		"nonsense":    "has sent nonsense: damaged frame",
		"fails":       "cannot go on: no library",
		"stopped":     "is stopped (T, as by SIGSTOP) and answers nobody",
		"spins":       "; --pmix-timeout gives it longer",
	} {
		t.Run(how, func(t *testing.T) {
			testenv.NoLeaks(t)
			patience := map[string]time.Duration{"never ready": 200 * time.Millisecond, "deaf": 3 * time.Second, "stopped": 2 * time.Second, "spins": testenv.Limit(50 * time.Millisecond)}[how]
			s := serve(t, how, patience)
			c := s.connect(t)
			s.want(t, want)
			if c != nil {
				// The rank is not left waiting.
				_ = c.SetReadDeadline(time.Now().Add(testenv.Limit(20 * time.Second)))
				if _, err := io.ReadAll(c); os.IsTimeout(err) {
					t.Error("the connection stays open")
				}
			}
			s.Close()
			select {
			case got := <-s.told:
				t.Errorf("told twice: %q", got)
			default:
			}
		})
	}
}

// A helper that works is given longer than one that does nothing.
func TestBusyHelperIsWaitedFor(t *testing.T) {
	testenv.NoLeaks(t)
	s := serve(t, "slow", time.Second)
	if s.connect(t) == nil {
		t.FailNow()
	}
	s.want(t, "joined first.1")
	s.want(t, "ask 7 ")
	s.Close()
	select {
	case got := <-s.told:
		t.Errorf("told %q", got)
	default:
	}
}

// What ranks said last is told before Drain returns, which does not wait for ever.
func TestDrain(t *testing.T) {
	for how, want := range map[string]string{"serves": "say 2 last words", "deaf at last": ""} {
		t.Run(how, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := serve(t, how, 10*time.Second)
			s.Drain("first", time.Hour) // nobody was ever connected
			if s.connect(t) == nil {
				t.FailNow()
			}
			s.want(t, "joined first.1")
			s.want(t, "ask 7 ")
			limit := 20 * time.Second
			if want == "" {
				limit = 100 * time.Millisecond
			}
			s.Drain("first", limit)
			got := ""
			select {
			case got = <-s.told:
			default:
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			s.Close()
		})
	}
}

// A helper that dies is told of before Drain returns: ranks that end because of it
// may be seen first.
func TestDrainWaitsForADyingHelper(t *testing.T) {
	testenv.NoLeaks(t)
	s := serve(t, "dies", 10*time.Second)
	s.connect(t)
	testenv.Await(t, 20*time.Second, "the helper's start", func() bool { return !s.Idle() })
	s.Drain("first", time.Hour)
	select {
	case got := <-s.told:
		if want := "exited with status 3: out of luck"; !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	default:
		t.Error("Drain returned before the helper's death was told")
	}
}

func TestClosedWhileItStarts(t *testing.T) {
	testenv.NoLeaks(t)
	for range 20 {
		s := serve(t, "serves", 0)
		s.connect(t)
		s.Close()
	}
}
