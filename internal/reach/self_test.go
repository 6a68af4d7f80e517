package reach

import (
	"errors"
	"net/netip"
	"testing"
)

func TestNamesOfThisMachine(t *testing.T) {
	hosts := "127.0.0.1 localhost\n127.0.1.1 n1.cluster n1 # Debian's\n10.9.0.1 Head head.lan.\n10.9.0.2 n2\nfd09::1 six\nnonsense x\n"
	dns := map[string]string{"n1.far": "10.9.0.7", "n1.near": "10.9.0.1"}
	for _, c := range []struct {
		name, own string
		is        bool
	}{
		{"n1", "n1.cluster", true}, {"n1.cluster", "n1.cluster", true}, {"localhost", "n5", true}, {"N1.Cluster.", "n1.cluster", true},
		{"n7", "n70.cluster", false}, {"n5.a", "n5.a.b", false}, {"", "n1", false}, {"", "localhost", false},
		{"127.0.0.1", "n1", true}, {"127.0.1.1", "n1", true}, {"::1", "n1", true}, {"10.9.0.1", "n1", true}, {"fd09::1", "n1", true}, {"FD09:0::1", "n1", true},
		{"::ffff:10.9.0.1", "n1", true}, {"fe80::1", "n1", true}, {"fe80::1%eth0", "n1", true}, {"10.9.0.2", "n1", false}, {"fd09::2", "n1", false},
		{"head", "n1", true}, {"HEAD.lan", "n1", true}, {"six", "n1", true}, {"n2", "n1", false}, {"n2", "n2", true},
		{"n5.near", "n5", true}, {"n1.far", "n1", false}, {"n1.near", "n1", true}, {"n3.near", "n1", false},
	} {
		s := &Self{Name: c.own,
			addresses: func() []netip.Addr {
				return []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fe80::1%eth0")}
			},
			aliases: func() map[string][]netip.Addr { return parseHosts(hosts) },
			resolve: func(name string) ([]netip.Addr, error) {
				if a, is := dns[name]; is {
					return []netip.Addr{netip.MustParseAddr(a)}, nil
				}
				if name != "n5.near" {
					t.Errorf("the resolver is asked for %s", name)
				}
				return nil, errors.New("no such host")
			},
		}
		for range 2 {
			if got := s.Is(c.name); got != c.is {
				t.Errorf("%q on %q: got %v, want %v", c.name, c.own, got, c.is)
			}
		}
	}
}

// The addresses of the interfaces that are up.
func TestThisMachine(t *testing.T) {
	s := This()
	list, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if name := a.Prefix.Addr().String(); !s.Is(name) {
			t.Errorf("%s of %s is not this machine's", name, a.Interface)
		}
	}
	if !s.Is(s.Name) || s.Is("192.0.2.200") {
		t.Errorf("%s: %v, 192.0.2.200: %v", s.Name, s.Is(s.Name), s.Is("192.0.2.200"))
	}
}
