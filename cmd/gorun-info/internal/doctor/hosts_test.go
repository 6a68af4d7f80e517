package doctor

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// What ssh says when it does not come through, and what is made of it.
func TestHostRefuses(t *testing.T) {
	for _, c := range []struct{ name, stderr, want, fix string }{
		{"no key", "ada@node02: Permission denied (publickey,password).\n", "no key of this user's is accepted", "ssh-copy-id ada@node02"},
		{"unknown", "Host key verification failed.\r\n", "its key is not in known_hosts", "ssh-keyscan node02 >>~/.ssh/known_hosts"},
		{"another key", "@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n", "not the one in known_hosts", "ssh-keygen -R node02"},
		{"no name", "ssh: Could not resolve hostname node02: Name or service not known\n", "ssh does not know the name", "/etc/hosts"},
		{"no server", "ssh: connect to host node02 port 22: Connection refused\n", "nothing listens there", "systemctl enable --now ssh"},
		{"away", "ssh: connect to host node02 port 22: Connection timed out\n", "it cannot be reached", "ping node02"},
		{"something else", "Warning: Permanently added 'node02' to the list\nkex_exchange_identification: reset\nWarning: Permanently added x\n", "kex_exchange_identification: reset", "ssh -v ada@node02 true"},
		{"nothing", "", "exit status 255", "ssh -v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthy()
			m.says["ssh ada@node02"], m.fails["ssh ada@node02"] = c.stderr, errors.New("exit status 255")
			found, _ := m.host(t.Context(), hostfile.Host{Name: "node02", User: "ada"})
			if len(found) != 2 || found[0].State != OK || found[1].State != Problem || !strings.Contains(found[1].Found, c.want) || !strings.Contains(found[1].Fix, c.fix) {
				t.Errorf("got %+v, want a problem of %q, fix %q", found, c.want, c.fix)
			}
		})
	}
}

func TestHostAnswers(t *testing.T) {
	const agent = "agent /opt/gorun/gorun-agent\ngorun-agent of gorun 0.1.0 abc, go1.26 linux/amd64\n"
	for _, c := range []struct {
		name, says string
		state      [2]State // of the agent, of the clock
		agent      string
		clock      string
	}{
		{"well", "gorun-info 1800000000.200000000\n" + agent, [2]State{OK, OK}, "/opt/gorun/gorun-agent, 0.1.0 abc", "the same within 1.0 s"},
		{"a banner first", "Welcome!\ngorun-info 1800000000.2\n" + agent, [2]State{OK, OK}, "/opt/gorun/gorun-agent", "the same"},
		{"no agent", "gorun-info 1800000000.2\n", [2]State{Note, OK}, "none in PATH, and none in /opt/gorun", "the same"},
		{"an old agent", "gorun-info 1800000000.2\nagent /usr/bin/gorun-agent\ngorun-agent of gorun 0.0.9, go1.20\n", [2]State{Problem, OK}, `/usr/bin/gorun-agent is "0.0.9"`, "the same"},
		{"an agent that says nothing", "gorun-info 1800000000.2\nagent /usr/bin/gorun-agent\n", [2]State{Problem, OK}, `/usr/bin/gorun-agent is ""`, "the same"},
		{"ahead", "gorun-info 1800000060.4\n" + agent, [2]State{OK, Note}, "", "60.0 s ahead"},
		{"behind", "gorun-info 1799999990.0\n" + agent, [2]State{OK, Note}, "", "10.0 s behind"},
		{"whole seconds", "gorun-info 1799999999\n" + agent, [2]State{OK, OK}, "", "the same"},
		{"no nanoseconds", "gorun-info 1800000000.%N\n" + agent, [2]State{OK, OK}, "", "the same"},
		{"no clock", "gorun-info noon\n" + agent, [2]State{OK, Note}, "", `"noon" is no time`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := healthy()
			m.took = 400 * time.Millisecond
			m.says["ssh node02"] = c.says
			found, _ := m.host(t.Context(), hostfile.Host{Name: "node02"})
			if len(found) != 4 || found[1].State != OK || found[1].Found != "works, in 0.4 s" {
				t.Fatalf("got %+v, want four findings, ssh's in 0.4 s", found)
			}
			if a := found[2]; a.State != c.state[0] || !strings.Contains(a.Found, c.agent) || (a.Fix == "") != (a.State == OK) {
				t.Errorf("agent: got %+v, want %s %q", a, c.state[0], c.agent)
			}
			if k := found[3]; k.State != c.state[1] || !strings.Contains(k.Found, c.clock) || (k.Fix == "") != (k.State == OK) {
				t.Errorf("clock: got %+v, want %s %q", k, c.state[1], c.clock)
			}
		})
	}
}

func TestHostAddress(t *testing.T) {
	for _, c := range []struct {
		name, host, addr string
		err              error
		state            State
		want             string
	}{
		{"well", "node02", "10.0.0.2", nil, OK, "10.0.0.2"},
		{"in another family's words", "node02", "::ffff:10.0.0.2", nil, OK, "10.0.0.2"},
		{"itself", "localhost", "127.0.0.1", nil, OK, "127.0.0.1"},
		{"taken for itself", "node02", "127.0.1.1", nil, Problem, "which is this host"},
		{"unknown", "node02", "10.0.0.2", errors.New("no such host"), Note, "no such host"},
	} {
		m := healthy()
		m.Resolve = func(context.Context, string) ([]netip.Addr, error) { return addrs(c.addr), c.err }
		if f := m.hostAddress(t.Context(), c.host); f.State != c.state || !strings.Contains(f.Found, c.want) || strings.Contains(f.Found, "ffff") {
			t.Errorf("%s: got %+v, want %s %q", c.name, f, c.state, c.want)
		}
	}
}

// A check that never comes back is a problem after Limit, and holds no other up.
func TestStuckCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := healthy()
		m.Space = func(string) (Space, error) { <-release; return Space{}, nil }
		m.says["ssh node02"] = "gorun-info 1800000000.2\n"
		m.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			if name == "node02" {
				return addrs("10.0.0.2"), nil
			}
			<-ctx.Done() // it minds its context, and says so
			return nil, ctx.Err()
		}
		start := time.Now()
		found := Examine(t.Context(), m.View, []hostfile.Host{{Name: "node02"}})
		if took := time.Since(start); took > Limit+Limit/5 {
			t.Errorf("it took %v, want at most %v", took, Limit)
		}
		close(release)
		want := map[string]string{"shm": "no answer within 10s", "tmp": "no answer within 10s", "hostname": "deadline exceeded"}
		for _, f := range found {
			if text, bad := want[f.Name]; bad != (f.State == Problem) || !strings.Contains(f.Found, text) {
				t.Errorf("got %+v, want problems of %v", f, want)
			}
		}
		if last := found[len(found)-1]; last.Name != "host node02 clock" {
			t.Errorf("the last finding is %+v, want the host's clock", last)
		}
		synctest.Wait()
	})
}

// No word that ssh is given can be an option or another command.
func TestSSHCommand(t *testing.T) {
	m := healthy()
	m.Beside = "/opt/it's here"
	argv := m.sshCommand("ada@node02")
	if n := len(argv); argv[n-3] != "--" || argv[n-2] != "ada@node02" || !strings.HasPrefix(argv[n-1], "sh -c '") {
		t.Errorf("got %q", argv)
	}
	for _, want := range []string{"BatchMode=yes", "ConnectTimeout=5"} {
		if !strings.Contains(strings.Join(argv, " "), want) {
			t.Errorf("got %q, want %s", argv, want)
		}
	}
}

// Of many hosts only so many are asked at a time, and a slow one does not take
// the others' time.
func TestManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := healthy()
		var now, most atomic.Int32
		m.Run = func(ctx context.Context, argv ...string) (string, string, error) {
			if argv[0] != "ssh" {
				return "gorun 0.1.0 abc\n", "", nil
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(Limit - time.Second)
			now.Add(-1)
			return "gorun-info 1800000000.2\n", "", ctx.Err()
		}
		var hosts []hostfile.Host
		for i := range 3 * hostsAtOnce {
			hosts = append(hosts, hostfile.Host{Name: "n" + strconv.Itoa(i)})
		}
		found := Examine(t.Context(), m.View, hosts)
		if most.Load() > hostsAtOnce || len(found) != len(checks())+4*len(hosts) {
			t.Errorf("got %d at once and %d findings, want at most %d and %d", most.Load(), len(found), hostsAtOnce, len(checks())+4*len(hosts))
		}
		for i, h := range hosts {
			if name := found[len(checks())+4*i].Name; name != "host "+h.Name {
				t.Errorf("in the place of %s is %s", h.Name, name)
			}
		}
	})
}
