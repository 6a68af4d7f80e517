package hostfile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxHosts is how many hosts a range may stand for: more than any machine has,
// and few enough that a slip of the finger does not fill the memory.
const maxHosts = 1 << 16

// Auto is the number of slots of NAME:*, as in Open MPI: one for each CPU of the host.
const Auto = -1

// Host is a host of a list or file.
type Host struct {
	Name  string
	User  string // login name; "": not given
	Slots int    // 0: not given; or Auto
	Max   int    // maximum number of slots; 0: not given
}

// Find is the index of the host that a name means: that of the same name, or else the first one that is the
// same without what follows the first dot, for machines are called with their domain and without. -1: none.
func Find(hosts []Host, name string) int {
	short := func(name string) string {
		if _, err := netip.ParseAddr(name); err == nil {
			return name
		}
		before, _, _ := strings.Cut(name, ".")
		return before
	}
	at := slices.IndexFunc(hosts, func(h Host) bool { return h.Name == name })
	if at < 0 {
		at = slices.IndexFunc(hosts, func(h Host) bool { return short(h.Name) == short(name) })
	}
	return at
}

// List reads a comma-separated list. The result has the order of the
// list, with a host as often as it is named.
func List(text string) ([]Host, error) {
	var hosts []Host
	for _, item := range items(text) {
		more, err := hostsOf(item)
		if err != nil {
			return nil, fmt.Errorf("found %q in %q, expected %w", item, text, err)
		}
		if len(hosts)+len(more) > maxHosts {
			return nil, fmt.Errorf("found more than %d hosts in %q", maxHosts, text)
		}
		hosts = append(hosts, more...)
	}
	return hosts, nil
}

// items splits a list at the commas that stand in no brackets.
func items(text string) []string {
	var parts []string
	depth, start := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth <= 0 {
				parts = append(parts, text[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, text[start:])
}

// hostsOf reads [USER@]NAME[:SLOTS], which is several hosts if NAME has a range.
// Its error says what was expected.
func hostsOf(item string) ([]Host, error) {
	user, at, hasUser := strings.Cut(item, "@")
	if !hasUser {
		user, at = "", item
	} else if !printable(user) {
		return nil, errors.New("a user's name before the @")
	}
	if strings.HasPrefix(at, "[") {
		return addressOf(user, at[1:])
	}
	name, slots, counted := strings.Cut(at, ":")
	names, err := expand(name)
	if err != nil {
		return nil, err
	}
	return withSlots(names, user, slots, counted)
}

// addressOf reads ADDRESS][:SLOTS.
func addressOf(user, text string) ([]Host, error) {
	address, rest, closed := strings.Cut(text, "]")
	slots, counted := strings.CutPrefix(rest, ":")
	if _, err := netip.ParseAddr(address); err != nil || !closed {
		return nil, errors.New("an IPv6 address in brackets; a range of hosts has a name before the bracket")
	}
	if rest != "" && !counted {
		return nil, errors.New("only :SLOTS after the bracket")
	}
	return withSlots([]string{address}, user, slots, counted)
}

// withSlots makes hosts of names.
func withSlots(names []string, user, slots string, counted bool) ([]Host, error) {
	n := 0
	switch {
	case slots == "*", strings.EqualFold(slots, "auto"):
		n = Auto
	case counted:
		var err error
		if n, err = positive(slots); err != nil {
			return nil, errors.New("a number of slots, 1 or more, or *, after the colon (an IPv6 address goes in brackets)")
		}
	}
	hosts := make([]Host, len(names))
	for i, name := range names {
		if !printable(name) {
			return nil, errors.New("NAME or NAME:SLOTS")
		}
		hosts[i] = Host{Name: name, User: user, Slots: n}
	}
	return hosts, nil
}

// printable tells whether a name can stand in messages and on command lines.
func printable(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune(`/@[],"'=`, r) || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// positive reads a number of 1 or more.
func positive(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New("a number, 1 or more")
	}
	return int(n), nil
}

// expand writes out the ranges of a name: rack[1-2]n[01-03,7] is eight names.
func expand(name string) ([]string, error) {
	before, rest, ranged := strings.Cut(name, "[")
	if !ranged {
		return []string{name}, nil
	}
	inside, after, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, errors.New("a ] that closes the range")
	}
	tails, err := expand(after)
	if err != nil {
		return nil, err
	}
	var names []string
	for part := range strings.SplitSeq(inside, ",") {
		low, high, err := bounds(part)
		if err != nil {
			return nil, err
		}
		if uint64(len(names))+(high-low+1)*uint64(len(tails)) > maxHosts {
			return nil, fmt.Errorf("%d hosts at most", maxHosts)
		}
		digits := strings.IndexByte(part, '-')
		if digits < 0 {
			digits = len(part)
		}
		for n := low; n <= high; n++ {
			for _, tail := range tails {
				names = append(names, fmt.Sprintf("%s%0*d%s", before, digits, n, tail))
			}
		}
	}
	return names, nil
}

// bounds reads 7 or 01-04.
func bounds(part string) (low, high uint64, err error) {
	wrong := errors.New("numbers and ranges of numbers in the brackets, as node[01-04,7]")
	from, to, isRange := strings.Cut(part, "-")
	if !isRange {
		to = from
	}
	if len(from) > 18 || len(to) > 18 || !digits(from) || !digits(to) {
		return 0, 0, wrong
	}
	low, _ = strconv.ParseUint(from, 10, 63) // digits only, and few
	high, _ = strconv.ParseUint(to, 10, 63)
	if low > high || high-low >= maxHosts {
		return 0, 0, wrong
	}
	return low, high, nil
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }
