package place

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// The words for objects, also of Hydra.
var kinds = map[string]topo.Kind{
	"hwthread": topo.Thread, "hwt": topo.Thread, "pu": topo.Thread, "thread": topo.Thread,
	"core":    topo.Core,
	"l1cache": topo.L1, "l1": topo.L1, "l1dcache": topo.L1, "l1ucache": topo.L1, "l1icache": topo.L1,
	"l2cache": topo.L2, "l2": topo.L2, "l2dcache": topo.L2, "l2ucache": topo.L2,
	"l3cache": topo.L3, "l3": topo.L3, "l3dcache": topo.L3, "l3ucache": topo.L3,
	"numa":    topo.NUMA,
	"package": topo.Package, "socket": topo.Package,
}

// refused are words that others know and this launcher does not, with the reason.
func refused(word string) error {
	switch {
	case word == "board":
		return errors.New("the kernel shows no boards; use package, or node")
	case strings.HasPrefix(word, "l4"), strings.HasPrefix(word, "l5"):
		return errors.New("caches beyond the third level are not told apart; use l3cache")
	case word == "dist", strings.HasPrefix(word, "device="), strings.HasPrefix(word, "pci"), strings.HasPrefix(word, "gpu"),
		strings.HasPrefix(word, "ib"), strings.HasPrefix(word, "eth"), word == "en", strings.HasPrefix(word, "hfi"), strings.HasPrefix(word, "hsn"):
		return errors.New("gorun does not look up where devices are; use numa, or a rankfile")
	}
	return nil
}

const mapWords = "slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package, seq, rankfile, pe-list=LIST or ppr:N:OBJECT"

// ParseMap reads a mapping: an object, ppr:N:object, pe-list=LIST, with
// modifiers behind colons. "" is the default.
func ParseMap(text string) (Map, error) {
	m := Map{Kind: topo.Whole}
	words := strings.Split(text, ":")
	word := func() string {
		w := words[0]
		words = words[1:]
		return w
	}
	w := word()
	lower := strings.ToLower(w)
	switch lower {
	case "", "slot", "machine":
	case "openmpi":
		m.By = MapOpenMPI
	case "node", "host":
		m.By = ByNode
	case "rr":
		m.By, m.Kind = Objects, topo.Thread
	case "seq":
		m.By = Seq
	case "rankfile":
		m.By = Ranks
	case "ppr":
		m.By = PPR
		if len(words) < 2 {
			return m, fmt.Errorf("%q: want ppr:N:OBJECT, as ppr:2:package", text)
		}
		n, err := strconv.Atoi(word())
		if err != nil || n < 1 {
			return m, fmt.Errorf("%q: want a number of ranks, 1 or more, for each object; as ppr:2:package", text)
		}
		m.N = n
		// Old versions separate the modifiers by commas.
		object, mods, some := strings.Cut(word(), ",")
		if some {
			words = append(strings.Split(mods, ","), words...)
		}
		if m.Kind, err = object1(object, true); err != nil {
			return m, err
		}
	default:
		if list, ok := strings.CutPrefix(lower, "pe-list="); ok {
			cpus, err := topo.ParseSet(list)
			if err != nil || cpus.Len() == 0 {
				return m, fmt.Errorf("%q: want CPU numbers, as pe-list=0-3,8", w)
			}
			m.By, m.CPUs = Listed, cpus
			break
		}
		object, mods, some := strings.Cut(w, ",")
		if some {
			words = append(strings.Split(mods, ","), words...)
		}
		k, err := object1(object, false)
		if err != nil {
			return m, err
		}
		m.By, m.Kind = Objects, k
	}
	for len(words) > 0 {
		if err := m.modify(word()); err != nil {
			return m, err
		}
	}
	if m.Ordered && m.By != Listed {
		return m, fmt.Errorf("%q: ordered goes with pe-list=LIST", text)
	}
	return m, nil
}

// object1 is the kind of a word.
func object1(word string, whole bool) (topo.Kind, error) {
	lower := strings.ToLower(word)
	if k, ok := kinds[lower]; ok {
		return k, nil
	}
	if whole && (lower == "node" || lower == "machine" || lower == "host") {
		return topo.Whole, nil
	}
	if err := refused(lower); err != nil {
		return 0, fmt.Errorf("%q: %w", word, err)
	}
	if whole {
		return 0, fmt.Errorf("%q: want hwthread, core, l1cache, l2cache, l3cache, numa, package or node", word)
	}
	return 0, fmt.Errorf("%q: want %s", word, mapWords)
}

// modify takes a modifier.
func (m *Map) modify(word string) error {
	lower := strings.ToLower(word)
	name, value, _ := strings.Cut(word, "=")
	if n, err := strconv.Atoi(word); err == nil && m.By == Objects {
		// Hydra's core:2 deals to every second core; the ranks' own binding
		// takes that many, so it is the same as pe where it has an effect.
		if n != 1 {
			return fmt.Errorf("%q: each rank is dealt one object; to give it %d write --bind-to %s:%d", word, n, m.Kind, n)
		}
		return nil
	}
	switch strings.ToLower(name) {
	case "pe":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("%q: want a number of cores for each rank, as pe=2", word)
		}
		m.PE = n
		return nil
	case "file":
		if value == "" || m.By != Ranks && m.By != Seq {
			return fmt.Errorf("%q: goes with rankfile, as rankfile:file=NAME", word)
		}
		return nil
	}
	switch lower {
	case "span":
		m.Span = true
	case "oversubscribe":
		m.Over = Yes
	case "nooversubscribe":
		m.Over = No
	case "nolocal":
		m.NoLocal = true
	case "hwtcpus":
		m.Threads = true
	case "corecpus":
		m.Threads = false
	case "ordered":
		m.Ordered = true
	case "inherit", "noinherit", "":
		// Of jobs that a job starts: they are mapped as they ask.
	default:
		return fmt.Errorf("%q: want pe=N, span, oversubscribe, nooversubscribe, nolocal, hwtcpus or corecpus", word)
	}
	return nil
}

// ParseRank reads an order of ranks; "" is the default.
func ParseRank(text string) (Rank, error) {
	word, mod, _ := strings.Cut(strings.ToLower(text), ":")
	var r Rank
	switch word {
	case "":
	case "slot":
		r.By = RankSlot
	case "node", "host":
		r.By = RankNode
	case "fill":
		r.By = RankFill
	case "span":
		r.By = RankSpan
	default:
		r.By = RankObject
		var err error
		if r.Kind, err = kindOf(word, text, "slot, node, fill, span, hwthread, core, l1cache, l2cache, l3cache, numa or package"); err != nil {
			return r, err
		}
	}
	switch {
	case mod == "":
	case mod == "span" && r.By == RankObject:
		r.Span = true
	case mod == "fill" && r.By == RankObject:
		r.By = RankFill
	case mod == "span" && r.By == RankNode:
		// That is what it does.
	default:
		return r, fmt.Errorf("%q: want no modifier, or span behind node or an object, as package:span", text)
	}
	return r, nil
}

// kindOf is the object that a word of text names; want are the words that there are.
func kindOf(word, text, want string) (topo.Kind, error) {
	k, ok := kinds[word]
	if err := refused(word); !ok && err != nil {
		return k, fmt.Errorf("%q: %w", text, err)
	} else if !ok {
		return k, fmt.Errorf("%q: want %s", text, want)
	}
	return k, nil
}

// ParseBind reads what ranks are bound to; "" is the default.
func ParseBind(text string) (Bind, error) {
	words := strings.Split(strings.ToLower(text), ":")
	word := words[0]
	words = words[1:]
	var b Bind
	switch word {
	case "":
	case "none":
		b.To = BindNone
	case "openmpi":
		b.To = DefaultOpenMPI
	case "rr":
		b.To = BindLists
	case "cpu-list":
		// The CPUs of Policy.CPUs: all of them, or as "ordered" one for each rank of
		// a host in turn.
		b.To, b.Kind, b.Overload, b.Listed = BindObject, topo.Whole, true, true
		if slices.Contains(words, "ordered") {
			b.To = BindLists
			words = slices.DeleteFunc(words, func(w string) bool { return w == "ordered" })
		}
	case "machine", "node", "board":
		b.To, b.Kind, b.Overload = BindObject, topo.Whole, true
	case "user":
		if len(words) == 0 {
			return b, fmt.Errorf("%q: want CPUs for the ranks of a host in turn, as user:0+2,1,3-5", text)
		}
		b.To = BindLists
		for item := range strings.SplitSeq(words[0], ",") {
			s, err := topo.ParseSet(strings.ReplaceAll(item, "+", ","))
			if err != nil || s.Len() == 0 {
				return b, fmt.Errorf("%q in %q: want CPU numbers, joined by + for one rank, as user:0+2,1,3-5", item, text)
			}
			b.Lists = append(b.Lists, s)
		}
		words = words[1:]
	default:
		b.To = BindObject
		var err error
		if b.Kind, err = kindOf(word, text, "none, hwthread, core, l1cache, l2cache, l3cache, numa, package, machine, cpu-list or user:LIST"); err != nil {
			return b, err
		}
	}
	for _, mod := range words {
		switch n, err := strconv.Atoi(mod); {
		case err == nil && n >= 1 && b.To == BindObject:
			b.Count = n
		case mod == "overload-allowed", mod == "overload":
			b.Overload = true
		case mod == "no-overload", mod == "report", mod == "":
		case mod == "if-supported":
			b.IfSupported = true
		default:
			return b, fmt.Errorf("%q in %q: want overload-allowed, if-supported, or a number of objects, as core:2", mod, text)
		}
	}
	return b, nil
}

// Order gives a binding to listed CPUs the list as it was written, "3,0-1": a set
// of CPUs has no order.
func (b *Bind) Order(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		s, err := topo.ParseSet(item)
		if err != nil {
			return err
		}
		for _, c := range s.List() {
			b.Lists = append(b.Lists, topo.SetOf(c))
		}
	}
	return nil
}
