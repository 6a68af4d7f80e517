package reach

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(text string) (list []netip.Prefix) {
	for f := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(f))
	}
	return list
}

func TestShared(t *testing.T) {
	for _, c := range []struct {
		name, own string
		others    []string
		want      string // "" for none
		hosts     int
	}{
		{"one network", "10.9.0.1/24", []string{"10.9.0.2/24", "10.9.0.3/24"}, "10.9.0.1", 2},
		{"the second of two", "192.168.7.1/24 10.9.0.1/24", []string{"192.168.8.1/24 10.9.0.2/24"}, "10.9.0.1", 1},
		{"most hosts", "10.1.0.1/24 10.9.0.1/24", []string{"10.1.0.2/24 10.9.0.2/24", "10.9.0.3/24"}, "10.9.0.1", 2},
		{"the first of equals", "10.1.0.1/24 10.9.0.1/24", []string{"10.9.0.2/24 10.1.0.2/24"}, "10.1.0.1", 1},
		{"IPv6", "2001:db8::1/64", []string{"10.9.0.2/24 2001:db8::2/64"}, "2001:db8::1", 1},
		{"an address of both", "10.0.2.15/24 10.9.0.1/24", []string{"10.0.2.15/24 10.9.0.2/24"}, "10.9.0.1", 1},
		{"of one of them", "10.0.2.15/24 10.9.0.1/24", []string{"10.0.2.16/24 10.9.0.2/24", "10.0.2.15/24 10.9.0.3/24"}, "10.9.0.1", 2},
		{"routed", "10.1.0.1/24", []string{"10.2.0.1/24"}, "", 0},
		{"none here", "", []string{"10.2.0.1/24"}, "", 0},
		{"none there", "10.1.0.1/24", []string{""}, "", 0},
	} {
		var others [][]netip.Prefix
		for _, o := range c.others {
			others = append(others, prefixes(o))
		}
		a, hosts := Shared(prefixes(c.own), others)
		if hosts != c.hosts || hosts > 0 && a.String() != c.want {
			t.Errorf("%s: got %v with %d hosts, want %s with %d", c.name, a, hosts, c.want, c.hosts)
		}
	}
}

func TestOuterAndFirst(t *testing.T) {
	list := []Address{{"lo", netip.MustParsePrefix("127.0.0.1/8")}, {"docker0", netip.MustParsePrefix("172.17.0.1/16")},
		{"eth0", netip.MustParsePrefix("fe80::1/64")}, {"eth0", netip.MustParsePrefix("2001:db8::1/64")}, {"eth1", netip.MustParsePrefix("10.9.0.1/24")}}
	if got := Outer(list); !slices.Equal(got, list[3:]) {
		t.Errorf("got %v, want %v", got, list[3:])
	}
	if a, err := First(list, "--interface"); err != nil || a != list[3] {
		t.Errorf("got %v, %v, want %v", a, err, list[3])
	}
	if a, err := First(list[:3], "--interface"); err == nil || !strings.Contains(err.Error(), "docker0 172.17.0.1/16") {
		t.Errorf("got %v, %v, want an error that lists what was found", a, err)
	}
	if _, err := First(nil, "--interface"); err == nil || !strings.Contains(err.Error(), "no interface that is up") {
		t.Errorf("got %v", err)
	}
}
