package reach

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// lookupLimit is how long the resolver may take to say whether a full name is this machine's.
const lookupLimit = 2 * time.Second

// A Self tells which names are this machine's. Only names that are like its own go to the resolver: a list of
// thousands of hosts costs no query.
type Self struct {
	Name string // the host name, or localhost

	addresses func() []netip.Addr
	aliases   func() map[string][]netip.Addr // /etc/hosts, by names in lower case
	resolve   func(name string) ([]netip.Addr, error)

	mu    sync.Mutex
	known map[string]bool // what Is has said
}

// This is this machine.
func This() *Self {
	name, _ := os.Hostname()
	return &Self{
		Name: cmp.Or(name, "localhost"),
		addresses: sync.OnceValue(func() (all []netip.Addr) {
			list, _ := Here()
			for _, a := range list {
				all = append(all, a.Prefix.Addr().Unmap())
			}
			return all
		}),
		aliases: sync.OnceValue(func() map[string][]netip.Addr {
			text, _ := os.ReadFile("/etc/hosts")
			return parseHosts(string(text))
		}),
		resolve: func(name string) ([]netip.Addr, error) {
			ctx, cancel := context.WithTimeout(context.Background(), lookupLimit)
			defer cancel()
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		},
	}
}

// Is tells whether a name or an address is this machine's: its host name, with its domain or without it, one of its
// addresses, or a name that /etc/hosts gives one of them.
func (s *Self) Is(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := s.known[name]
	if !known {
		is = s.find(strings.ToLower(strings.TrimSuffix(name, ".")))
		if s.known == nil {
			s.known = map[string]bool{}
		}
		s.known[name] = is
	}
	return is
}

func (s *Self) find(name string) bool {
	own := strings.ToLower(s.Name)
	if name == own || name == "localhost" || name != "" && strings.HasPrefix(own, name+".") && !strings.Contains(name, ".") {
		return true
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return s.has(a)
	}
	if addrs := s.aliases()[name]; addrs != nil {
		return slices.ContainsFunc(addrs, s.has)
	}
	if !strings.HasPrefix(name, own+".") {
		return false
	}
	// Its own name with a domain. Where the resolver does not know it, ssh would not either.
	addrs, err := s.resolve(name)
	return err != nil || slices.ContainsFunc(addrs, s.has)
}

// has tells whether packets to an address stay on this machine.
func (s *Self) has(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || slices.ContainsFunc(s.addresses(), func(own netip.Addr) bool { return own.WithZone("") == a.WithZone("") })
}

// parseHosts reads the lines of /etc/hosts: an address, and its names.
func parseHosts(text string) map[string][]netip.Addr {
	names := map[string][]netip.Addr{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		a, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		for _, name := range fields[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			names[name] = append(names[name], a)
		}
	}
	return names
}
