package doctor

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/meet"
	"github.com/gorun-mpi/gorun/internal/ports"
)

// What the calls of three hosts say of the pairs, each "from to protocol: error".
func TestCalls(t *testing.T) {
	const silent = "no answer within 3s"
	some := ports.Range{First: 40000, Last: 40100}
	for _, c := range []struct {
		name string
		fail []string
		want []string
		at   ports.Range
	}{
		{"all answer", nil, []string{"ok pairs: 3 hosts call each other by TCP and UDP, and all answer"}, ports.Range{}},
		{"one direction", []string{"b c tcp: " + silent}, []string{"problem b to c: TCP to 10.0.0.3: " + silent + "; c reaches b | on c: nft list ruleset; then let in, before what drops it: ip saddr 10.0.0.2 meta l4proto tcp accept"}, ports.Range{}},
		{"both", []string{"a b tcp: " + silent, "b a tcp: connection refused"}, []string{"problem a to b: TCP to 10.0.0.2: " + silent + "; b to a: connection refused"}, ports.Range{}},
		{"datagrams", []string{"c a udp: " + silent}, []string{"note c to a: UDP to 10.0.0.1: " + silent + "; TCP works | on a: "}, ports.Range{}},
		{"both protocols", []string{"c a udp: " + silent, "c a tcp: " + silent}, []string{"problem c to a: TCP"}, ports.Range{}},
		{"ports", []string{"b c tcp: " + silent, "a c udp: " + silent}, []string{
			"note a to c: UDP to 10.0.0.3: " + silent + "; TCP works | on c: nft list ruleset; then let in, before what drops it: ip saddr 10.0.0.1 udp dport 40000-40100 accept",
			"problem b to c: TCP to 10.0.0.3: " + silent + "; c reaches b | on c: nft list ruleset; then let in, before what drops it: ip saddr 10.0.0.2 tcp dport 40000-40100 accept"}, some},
		{"all answer at ports", nil, []string{"ok pairs: 3 hosts call each other by TCP and UDP at the ports 40000-40100, and all answer"}, some},
		{"several", []string{"a b tcp: x", "a c tcp: y"}, []string{"problem a to b: ", "problem a to c: "}, ports.Range{}},
		{"one is not there", []string{"b"}, []string{"ok pairs: "}, ports.Range{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := []string{"a", "b", "c"}
			at := func(name string) int { return strings.Index("abc", name) }
			var guests []guest
			var hosts []meet.Host
			for i, name := range names {
				guests = append(guests, guest{name: name})
				hosts = append(hosts, meet.Host{Here: meet.Here{Address: "10.0.0." + string(rune('1'+i))}, Calls: make([]meet.Call, 3)})
			}
			for _, text := range c.fail {
				f := strings.Fields(text)
				if len(f) == 1 {
					hosts[at(f[0])] = meet.Host{Err: errors.New("away")}
					continue
				}
				_, why, _ := strings.Cut(text, ": ")
				call := &hosts[at(f[0])].Calls[at(f[1])]
				if f[2] == "tcp:" {
					call.TCP = why
				} else {
					call.UDP = why
				}
			}
			list := calls(guests, hosts, c.at)
			if len(list) != len(c.want) {
				t.Fatalf("%+v, want %q", list, c.want)
			}
			for i, f := range list {
				if got := string(f.State) + " " + f.Name + ": " + f.Found + " | " + f.Fix; !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("%q, want %q", got, c.want[i])
				}
			}
		})
	}
}

func TestMet(t *testing.T) {
	far := guest{"node02", "ada@node02", "/opt/gorun-agent"}
	for _, c := range []struct {
		name   string
		g      guest
		h      meet.Host
		stderr string
		state  State
		want   string
	}{
		{"well", far, meet.Host{Here: meet.Here{Address: "10.0.0.2", Why: "ssh has come to it", Own: []string{"10.0.0.2"}}}, "", OK, "10.0.0.2, ssh has come to it"},
		{"Debian's own name", far, meet.Host{Here: meet.Here{Address: "10.0.0.2", Host: "node02", Own: []string{"127.0.1.1"}}}, "", Note, "it calls itself node02, which is 127.0.1.1 there"},
		{"here it is another check's", guest{name: "here"}, meet.Host{Here: meet.Here{Address: "10.0.0.1", Why: "so", Own: []string{"127.0.1.1"}}}, "", OK, "10.0.0.1, so"},
		{"no address", far, meet.Host{Err: errors.New("no interface")}, "", Problem, "does not meet the others: no interface"},
		{"ssh ended", far, meet.Host{Err: io.EOF}, "warning\nclient_loop: send disconnect\n", Problem, "does not meet the others: client_loop: send disconnect"},
	} {
		f := met(c.g, c.h, c.stderr, nil)
		if f.State != c.state || !strings.Contains(f.Found, c.want) || (f.Fix == "") != (c.state == OK) {
			t.Errorf("%s: %+v, want %v %q", c.name, f, c.state, c.want)
		}
	}
}

// Whom pairs starts: the guests by ssh, and this machine unless it is one of them.
func TestPairsStart(t *testing.T) {
	for own, want := range map[string]string{
		"node01":         "/opt/gorun/gorun-agent --meet\nssh ada@node02 'exec /opt/it is/gorun-agent --meet'",
		"node02.example": "ssh ada@node02 'exec /opt/it is/gorun-agent --meet'",
	} {
		m := healthy()
		m.Hostname = func() (string, error) { return own, nil }
		m.IsOwn = func(name string) bool { return strings.HasPrefix(own, name) }
		var started []string
		m.Start = func(_ context.Context, argv ...string) (*Program, error) {
			text := strings.Join(argv, " ")
			if argv[0] == "ssh" {
				text = "ssh " + argv[len(argv)-2] + " '" + strings.ReplaceAll(argv[len(argv)-1], "'", "") + "'"
			}
			started = append(started, text)
			return &Program{meet.Stream{In: nothing{}, Out: strings.NewReader("")}, func() (string, error) { return "", errors.New("exit status 1") }}, nil
		}
		found := m.pairs(t.Context(), []guest{{"node02", "ada@node02", "/opt/it is/gorun-agent"}})
		if got := strings.Join(started, "\n"); got != want {
			t.Errorf("on %s:\n%s\nwant\n%s", own, got, want)
		}
		for _, f := range found {
			if f.State != Problem || !strings.Contains(f.Found, "EOF (exit status 1)") {
				t.Errorf("on %s: %+v", own, f)
			}
		}
	}
	if found := healthy().pairs(t.Context(), nil); found != nil {
		t.Errorf("without hosts: %+v", found)
	}
}

// The ports at which the hosts are told to listen are the command line's, else the environment's.
func TestPairsHavePorts(t *testing.T) {
	for _, c := range []struct {
		name, environ string
		option        ports.Range
		want          string // of the order, or the finding
	}{
		{"none", "", ports.Range{}, `"Ports":{"First":0,"Last":0}`},
		{"ours", "GORUN_TCP_PORTS=40000-40100", ports.Range{}, `"Ports":{"First":40000,"Last":40100}`},
		{"Hydra's", "MPIEXEC_PORT_RANGE=50000:50010", ports.Range{}, `"Ports":{"First":50000,"Last":50010}`},
		{"Hydra's for any", "MPIEXEC_PORT_RANGE=0:0", ports.Range{}, `"Ports":{"First":0,"Last":0}`},
		{"both", "MPIEXEC_PORT_RANGE=50000:50010 GORUN_TCP_PORTS=40000-40100", ports.Range{}, `"Ports":{"First":40000,"Last":40100}`},
		{"an option", "GORUN_TCP_PORTS=40000-40100", ports.Range{First: 7, Last: 9}, `"Ports":{"First":7,"Last":9}`},
		{"nonsense", "GORUN_TCP_PORTS=40000", ports.Range{}, `GORUN_TCP_PORTS: found the ports "40000", expected FIRST-LAST`},
	} {
		m := healthy()
		m.Ports, m.Environ = c.option, append(m.Environ, strings.Fields(c.environ)...)
		var told recorded
		m.Start = func(context.Context, ...string) (*Program, error) {
			return &Program{meet.Stream{In: &told, Out: strings.NewReader("")}, func() (string, error) { return "", nil }}, nil
		}
		m.IsOwn = func(string) bool { return true } // one host alone: its order
		found := m.pairs(t.Context(), []guest{{"node02", "ada@node02", "/opt/gorun-agent"}})
		if len(found) != 1 || !strings.Contains(told.String()+found[0].Found, c.want) {
			t.Errorf("%s: told %s, found %+v, want %s", c.name, told.String(), found, c.want)
		}
	}
}

type recorded struct{ strings.Builder }

func (*recorded) Close() error { return nil }

type nothing struct{}

func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) Close() error                { return nil }
