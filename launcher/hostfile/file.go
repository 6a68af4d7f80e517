package hostfile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Parse reads a file of hosts. name is the file's name in errors. Each host is in
// the result once, at the position of its first line, with the sum of its slots.
func Parse(text, name string) ([]Host, error) { return parse(text, name, (*file).merged) }

// Lines reads the same file for a placement with one rank per line: a
// host is in the result as often as it is named, in the file's order.
func Lines(text, name string) ([]Host, error) { return parse(text, name, (*file).listed) }

func parse(text, name string, list func(*file) []Host) ([]Host, error) {
	var f file
	number := 0
	for line := range strings.Lines(text) {
		number++
		if err := f.line(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	hosts := list(&f)
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s: found no host, expected one a line; try: node01 slots=8", name)
	}
	return hosts, nil
}

// listed are the hosts line by line, without those that are excluded.
func (f *file) listed() []Host {
	return slices.DeleteFunc(f.hosts, func(h Host) bool { return f.not[h.Name] })
}

// file collects the lines.
type file struct {
	hosts []Host
	not   map[string]bool // excluded by ^
}

// line reads a line.
func (f *file) line(line string) error {
	words := strings.Fields(uncomment(line))
	if len(words) == 0 {
		return nil
	}
	first := words[0]
	switch {
	case strings.HasPrefix(first, "+"):
		return fmt.Errorf("found %q, expected a host's name: hosts relative to an allocation are not supported", first)
	case first == "rank":
		return fmt.Errorf("found %q, expected a host's name; a rankfile is given with --rankfile", first)
	}
	excluded, exclude := strings.CutPrefix(first, "^")
	if exclude {
		first = excluded
	}
	hosts, err := nameOf(first)
	if err != nil {
		return fmt.Errorf("found %q, expected %w", words[0], err)
	}
	var said Host
	if err := said.words(join(words[1:])); err != nil {
		return err
	}
	if exclude {
		if f.not == nil {
			f.not = make(map[string]bool)
		}
		for _, h := range hosts {
			f.not[h.Name] = true
		}
		return nil
	}
	for _, h := range hosts {
		if said.Slots > 0 && h.Slots > 0 && said.Slots != h.Slots {
			return fmt.Errorf("found two numbers of slots, %d and %d", h.Slots, said.Slots)
		}
		if said.Slots > 0 {
			h.Slots = said.Slots
		}
		h.Max = said.Max
		if said.User != "" {
			h.User = said.User
		}
		if h.Max > 0 && h.Max < h.Slots {
			return fmt.Errorf("found max_slots=%d below the %d slots", h.Max, h.Slots)
		}
		f.hosts = append(f.hosts, h)
	}
	if len(f.hosts) > maxHosts {
		return fmt.Errorf("found more than %d hosts", maxHosts)
	}
	return nil
}

// nameOf reads the first word of a line: as in a list, but an IPv6 address needs
// no brackets, since slots=N can stand beside it.
func nameOf(word string) ([]Host, error) {
	user, at, hasUser := strings.Cut(word, "@")
	if !hasUser {
		user, at = "", word
	}
	if _, err := netip.ParseAddr(at); err == nil && printable(at) && (!hasUser || printable(user)) {
		return []Host{{Name: at, User: user}}, nil
	}
	return hostsOf(word)
}

// words reads what stands behind the name.
func (h *Host) words(words []string) error {
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return fmt.Errorf("found %q, expected slots=N, max_slots=N or user=NAME", word)
		}
		value = unquote(value)
		var err error
		switch strings.ReplaceAll(strings.ToLower(key), "-", "_") {
		case "slots", "cpu", "cpus", "count":
			h.Slots, err = positive(value)
		case "max_slots", "slots_max", "max_cpu", "cpu_max", "max_count", "count_max":
			h.Max, err = positive(value)
		case "user", "username", "user_name":
			if h.User = value; !printable(value) {
				err = errors.New("a user's name")
			}
		case "boards", "sockets", "sockets_per_board", "cores", "cores_per_socket":
			_, err = positive(value)
		case "binding":
			err = errors.New("no binding of a single host; --bind-to binds the ranks of all hosts")
		case "port":
			err = errors.New("no port; the configuration of the remote shell has it (~/.ssh/config)")
		default:
			err = errors.New("slots=N, max_slots=N or user=NAME")
		}
		if err != nil {
			return fmt.Errorf("found %q, expected %w", word, err)
		}
	}
	return nil
}

// merged are the hosts, each once, without the excluded ones.
func (f *file) merged() []Host {
	var hosts []Host
	at := make(map[string]int, len(f.hosts))
	times := make(map[string]int, len(f.hosts))
	for _, h := range f.hosts {
		if f.not[h.Name] {
			continue
		}
		times[h.Name]++
		i, seen := at[h.Name]
		if !seen {
			at[h.Name] = len(hosts)
			hosts = append(hosts, h)
			continue
		}
		// A line without slots is one, once there are several.
		have := &hosts[i]
		switch {
		case have.Slots == Auto || h.Slots == Auto:
			have.Slots = Auto
		case times[h.Name] == 2:
			have.Slots = max(1, have.Slots) + max(1, h.Slots)
		default:
			have.Slots += max(1, h.Slots)
		}
		if h.User != "" {
			have.User = h.User
		}
		if have.Max != 0 || h.Max != 0 {
			have.Max = max(have.Max+h.Max, have.Slots)
		}
	}
	return hosts
}

// uncomment cuts a comment off.
func uncomment(line string) string {
	line, _, _ = strings.Cut(line, "#")
	line, _, _ = strings.Cut(line, "//")
	return line
}

// join puts "slots = 4", which Open MPI reads, together as "slots=4".
func join(words []string) []string {
	var joined []string
	for _, word := range words {
		n := len(joined)
		if n > 0 && (strings.HasPrefix(word, "=") || strings.HasSuffix(joined[n-1], "=")) {
			joined[n-1] += word
			continue
		}
		joined = append(joined, word)
	}
	return joined
}

func unquote(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}
