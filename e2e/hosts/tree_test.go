package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// oneRelay has gorun on h1 log in to h2 alone, whose relay logs in to h3.
var oneRelay = []string{"--launch-tree", "2", "--launch-fanout", "1"}

// treeFaults happen to the relay on h2, or to what reaches it.
var treeFaults = []fault{
	{"kill -9 of a relay", true, killed, `^gorun: host h2: the relay there .*is lost: ssh exited with status 255`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], "gorun-agent --relay", syscall.SIGKILL)
	}},
	{"kill -9 of a relay's ssh client", false, killed, `^gorun: host h2: the relay there .*is lost: ssh was killed by signal 9`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[0], " h2 exec", syscall.SIGKILL)
	}},
	{"kill -9 of an ssh client of a relay", false, killed, `^gorun: host h3: its agent .*is lost: ssh was killed by signal 9`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], " h3 exec", syscall.SIGKILL)
	}},
	{"kill -9 of the agent beside a relay", false, killed, `^gorun: host h2: its agent .*is lost: .*gorun-agent was killed by signal 9`, func(p *play) {
		p.begin("idle")
		relay := p.b.Hosts[1].First(func(line string) bool { return strings.Contains(line, "gorun-agent --relay") })
		p.struck = time.Now()
		for _, pid := range testenv.Children(relay) {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasSuffix(string(line), "gorun-agent\x00") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}},
	{"kill -9 of gorun", false, killed, "", func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[0], bin+"/gorun --launch", syscall.SIGKILL)
	}},
	{"link down of a relay's host", true, cut, `^gorun: host h2: its agent .*has not answered for .*the relay`, func(p *play) {
		p.begin("idle")
		p.cut(p.b.Hosts[1])
	}},
	{"link down behind a relay", false, cut, `^gorun: host h3: its agent .*has not answered for`, func(p *play) {
		p.begin("idle")
		p.cut(p.b.Hosts[2])
	}},
	{"SIGSTOP of a relay", false, starting, `^gorun: host h2: (the relay there .*is lost|its agent)`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], "gorun-agent --relay", syscall.SIGSTOP)
	}},
	{"SIGSTOP of a relay while another host starts", true, starting, `^gorun: host h2: the relay there .*is lost`, func(p *play) {
		p.hold("h1,h2,h3")
		p.signal(p.b.Hosts[1], "gorun-agent --relay", syscall.SIGSTOP)
	}},
	{"SIGSTOP of a relay, and the job is told to end", true, 2*graceOfJob + 7*time.Second, "", func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], "gorun-agent --relay", syscall.SIGSTOP)
		p.signal(p.b.Hosts[0], bin+"/gorun --launch", syscall.SIGTERM)
	}},
}

// graceOfJob is what ranks have by default to end.
const graceOfJob = 2 * time.Second

func TestFaultsOfATree(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	for _, f := range treeFaults {
		if !f.quick && !*all {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			p := &play{t: t, b: b, fault: f, args: oneRelay}
			defer p.close()
			f.play(p)
			p.judge()
		})
	}
}

// gorun's host has ssh to the relays alone, and the relays' hosts to those of their blocks.
func TestTree(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 4)
	p := &play{t: t, b: b, args: []string{"--launch-tree", "2"}, hosts: "h1,h2,h3,h4"}
	defer p.close()
	p.begin("idle")
	var got []string
	for _, h := range b.Hosts {
		for _, line := range h.Processes() {
			for _, other := range b.Hosts {
				if strings.HasPrefix(line, "ssh ") && strings.Contains(line, " "+other.Name+" exec ") {
					got = append(got, h.Name+" to "+other.Name)
				}
			}
		}
	}
	slices.Sort(got)
	if want := []string{"h1 to h2", "h1 to h4", "h2 to h3"}; !slices.Equal(got, want) {
		t.Errorf("logins %q, want %q", got, want)
	}
	p.end()
	b.Idle(leftLimit)
	for _, c := range [][]string{
		{"-H", "h1,h2,h3,h4", filepath.Join(bin, "a2a"), "-m", "48"},
		{"--map-by", "core", "--oversubscribe", "-np", "4", "-H", "h2,h3,h4:2", filepath.Join(bin, "a2a"), "-m", "48"},
	} {
		if got := gorun(t, b, append([]string{"--launch-tree", "2"}, c...)...); got.status != 0 || !strings.Contains(got.out, "on every rank") {
			t.Errorf("%q: status %d\n%s%s", c, got.status, got.out, got.err)
		}
	}
	b.Idle(leftLimit)
}
