package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/gorun-mpi/gorun/launcher"
)

// parseHosts reads NAME[:SLOTS],... as -H has it. Names may be IPv6 addresses
// in brackets. A name that comes again adds to its slots.
func parseHosts(list string) ([]launcher.Host, error) {
	var hosts []launcher.Host
	for item := range strings.SplitSeq(list, ",") {
		host, err := parseHost(item)
		if err != nil {
			return nil, fmt.Errorf("found %q in %q, expected %w; try -H a:2,b:2", item, list, err)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// parseHost reads NAME[:SLOTS]. Its error says what was expected.
func parseHost(item string) (launcher.Host, error) {
	var name, slots string
	var counted bool
	if end := strings.LastIndexByte(item, ']'); strings.HasPrefix(item, "[") && end > 0 {
		name = item[1:end]
		if rest := item[end+1:]; rest != "" {
			if slots, counted = strings.CutPrefix(rest, ":"); !counted {
				return launcher.Host{}, fmt.Errorf("only :SLOTS after the bracket")
			}
		}
	} else {
		name, slots, counted = strings.Cut(item, ":")
	}
	host := launcher.Host{Name: name, Slots: 1}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r == '/' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return launcher.Host{}, fmt.Errorf("NAME or NAME:SLOTS")
	}
	if counted {
		n, err := strconv.ParseInt(slots, 10, 32)
		if err != nil || n < 1 {
			return launcher.Host{}, fmt.Errorf("a number of slots, 1 or more, after the colon (an IPv6 address goes in brackets)")
		}
		host.Slots = int(n)
	}
	return host, nil
}
