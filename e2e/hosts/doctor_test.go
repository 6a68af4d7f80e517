package hosts

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// gorun-info doctor has each pair of hosts call each other, and names the pair and the direction that fails.
func TestDoctor(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	testenv.Need(t, "nft")
	b := testbed.New(t, 3)
	in := func(host int, script string) {
		t.Helper()
		if out, err := b.Hosts[host-1].Command(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("h%d: %v\n%s", host, err, out)
		}
	}
	drop := func(what string) string {
		return "nft add table inet wall; nft add chain inet wall in '{ type filter hook input priority 0 ; }'; nft add rule inet wall in " + what + " drop"
	}
	const open = "nft delete table inet wall"
	for _, c := range []struct {
		name     string
		args     string
		set, end string // on h3
		status   int
		want     []string // lines, besides those of a machine
	}{
		{"all well", "", ":", ":", 0, []string{
			`ok +host h2 address +10\.9\.0\.2, ssh has come to it`, `ok +pairs +3 hosts call each other by TCP and UDP, and all answer; the slowest connection took`}},
		{"a firewall in one direction", "", drop("ip saddr 10.9.0.2 tcp dport != 22 tcp flags syn / syn,ack"), open, 1, []string{
			`problem +h2 to h3 +TCP to 10\.9\.0\.3: no answer within 3s; h3 reaches h2`, `fix: on h3: nft list ruleset; .* ip saddr 10\.9\.0\.2 meta l4proto tcp accept`}},
		{"a firewall in both", "", drop("ip saddr 10.9.0.2 tcp dport != 22 tcp flags syn / syn,ack") +
			"; nft add chain inet wall out '{ type filter hook output priority 0 ; }'; nft add rule inet wall out ip daddr 10.9.0.2 tcp flags syn / syn,ack reject with tcp reset", open, 1, []string{
			`problem +h2 to h3 +TCP to 10\.9\.0\.3: no answer within 3s; h3 to h2: connection refused`}},
		{"no datagrams", "", drop("ip saddr 10.9.0.1 meta l4proto udp"), open, 0, []string{
			`note +h1 to h3 +UDP to 10\.9\.0\.3: no answer within 3s; TCP works`}},
		{"a firewall with ports for gorun", "--tcp-ports 40000-40100", drop("tcp dport != { 22, 40000-40100 } tcp flags syn / syn,ack") + "; nft add rule inet wall in udp dport != 40000-40100 ct state new drop", open, 0, []string{
			`ok +pairs +3 hosts call each other by TCP and UDP at the ports 40000-40100, and all answer`}},
		{"a firewall with other ports", "--tcp-ports 40000-40100", drop("tcp dport != { 22, 50000-50100 } tcp flags syn / syn,ack"), open, 1, []string{
			`problem +h2 to h3 +TCP to 10\.9\.0\.3: no answer within 3s; h3 reaches h2`, `fix: on h3: nft list ruleset; .* ip saddr 10\.9\.0\.2 tcp dport 40000-40100 accept`}},
		{"Debian's own name", "", `{ echo 127.0.1.1 h3; grep -v h3 /etc/hosts; } >/run/hosts; mount --bind /run/hosts /etc/hosts`, "umount /etc/hosts", 0, []string{
			`note +host h3 address +10\.9\.0\.3, for gorun; it calls itself h3, which is 127\.0\.1\.1 there`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(3, c.set)
			defer in(3, c.end)
			got := run(t, b, append(strings.Fields(filepath.Join(bin, "gorun-info")+" doctor -v h2 h3"), strings.Fields(c.args)...)...)
			for _, want := range c.want {
				if !regexp.MustCompile(`(?m)^ *` + want).MatchString(got.out) {
					t.Errorf("no line %s", want)
				}
			}
			if strings.Contains(got.out, "problem  pairs") || (got.status == 0) != (c.status == 0) || t.Failed() {
				t.Errorf("status %d, want %d\n%s%s", got.status, c.status, got.out, got.err)
			}
			b.Idle(leftLimit)
		})
	}
}
