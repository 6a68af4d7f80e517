package launcher

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// info is what MPI's hints say about one program of a spawn.
type info struct {
	n     int // processes to start
	hosts []string
	dir   string
	path  string // directories to find it in
	env   []string
	each  int // processes on one host, at a time or (only) at most; 0: as many as it has slots for
	only  bool
}

// readInfo reads the hints of a program of which most processes are wanted. The
// reserved keys of MPI are host (a list), arch, wdir, path, file and soft;
// hosts and hostfile are Hydra's, env, add-host, add-hostfile, map_by, npernode,
// pernode and ppr are Open MPI's: of their policies those that choose hosts are
// followed. MPI wants hints that an implementation does not know to be ignored.
func readInfo(pairs [][2]string, most int) (info, error) {
	in := info{n: most}
	for _, pair := range pairs {
		key, value := pair[0], pair[1]
		var err error
		switch key {
		case "host", "hosts", "add-host":
			for name := range strings.SplitSeq(value, ",") {
				// Hydra takes a number of processes behind a name, as in its
				// lists of hosts.
				if name, _, _ = strings.Cut(strings.TrimSpace(name), ":"); name != "" {
					in.hosts = append(in.hosts, name)
				}
			}
		case "hostfile", "add-hostfile":
			in.hosts, err = hostsOfFile(value)
		case "wdir":
			in.dir = value
		case "path":
			in.path = value
		case "map_by", "ppr", "npernode", "pernode":
			in.each, in.only, err = eachHost(key, value)
		case "env":
			in.env = append(in.env, strings.FieldsFunc(value, func(r rune) bool { return r == '\n' })...)
		case "soft":
			in.n, err = soft(value, most)
		case "arch":
			if !strings.EqualFold(value, runtime.GOARCH) && value != machine() {
				err = fmt.Errorf("no host has this architecture: all have %s", machine())
			}
		}
		if err != nil {
			return in, fmt.Errorf("info %s=%s: %w", key, value, err)
		}
	}
	return in, nil
}

// eachHost reads how many processes go on a host: one in turn (map_by=node), or
// so many at most (npernode=2, pernode, ppr=2:node, map_by=ppr:2:node). Objects
// within a host are no matter here: spawned processes are not bound.
func eachHost(key, value string) (each int, only bool, err error) {
	value = strings.ToLower(value)
	if key == "map_by" {
		rest, ppr := strings.CutPrefix(value, "ppr:")
		if by, _, _ := strings.Cut(value, ":"); !ppr {
			if by == "node" {
				return 1, false, nil
			}
			return 0, false, nil
		}
		key, value = "ppr", rest
	}
	switch key {
	case "pernode":
		return 1, true, nil
	case "ppr":
		n, object, _ := strings.Cut(value, ":")
		if object, _, _ = strings.Cut(object, ":"); object != "node" && object != "n" {
			return 0, false, nil
		}
		value = n
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 {
		return 0, false, fmt.Errorf("want a number of processes for each node, 1 or more")
	}
	return int(n), true, nil
}

// machine is what uname calls this architecture.
func machine() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// hostsOfFile are the names in a file of hosts: the first word of each line, up
// to a colon.
func hostsOfFile(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			name, _, _ := strings.Cut(words[0], ":")
			hosts = append(hosts, name)
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("found no host, expected at least one")
	}
	return hosts, nil
}

// soft is the largest number of processes, most or fewer, in a set of Fortran 90
// triplets: "4", "1:8", "2:8:2", "1:2,5:9".
func soft(value string, most int) (int, error) {
	best := 0
	for part := range strings.SplitSeq(value, ",") {
		var at [3]int
		words := strings.Split(strings.TrimSpace(part), ":")
		if len(words) > 3 {
			return 0, fmt.Errorf("%q is not a triplet a:b:c", part)
		}
		for i, w := range words {
			n, err := strconv.ParseInt(strings.TrimSpace(w), 10, 32)
			if err != nil {
				return 0, fmt.Errorf("%q is not a triplet a:b:c of numbers", part)
			}
			at[i] = int(n)
		}
		first, last, step := at[0], at[0], 1
		if len(words) > 1 {
			last = at[1]
		}
		if len(words) > 2 {
			step = at[2]
		}
		if step == 0 {
			return 0, fmt.Errorf("%q has a step of 0", part)
		}
		best = max(best, largest(first, last, step, most))
	}
	if best < 1 {
		return 0, fmt.Errorf("it allows no number from 1 to %d", most)
	}
	return best, nil
}

// largest is the largest number, most or less, in first, first+step, ... up to
// last; 0 if there is none.
func largest(first, last, step, most int) int {
	if step < 0 {
		if first < last {
			return 0
		}
		// The same numbers from below.
		first, last, step = first-(first-last)/-step*-step, first, -step
	}
	last = min(last, most)
	if last < first {
		return 0
	}
	return max(0, first+(last-first)/step*step)
}
