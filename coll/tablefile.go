package coll

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// The file form of a table is JSON. Kinds and sizes that it does not name are the
// built-in ones.
//
//	{
//	  "eager_bytes": 8192,
//	  "chunk_bytes": 131072,
//	  "piece_bytes": 16384,
//	  "rules": {
//	    "alltoall": [
//	      {"ranks_from": 1, "bytes_from": 0, "algorithm": "direct"},
//	      {"ranks_from": 8, "bytes_from": 0, "algorithm": "bruck"},
//	      {"ranks_from": 8, "bytes_from": 33, "algorithm": "direct"}
//	    ]
//	  },
//	  "rules_across_hosts": {
//	    "barrier": [{"ranks_from": 1, "bytes_from": 0, "algorithm": "two-level"}]
//	  }
//	}
//
// The rules across hosts are for ranks on several hosts where some share one. Without
// them a kind that "rules" names has the same rules there.

// Bytes is the table in the file form that ParseTable reads.
func (t *Table) Bytes() []byte {
	var b bytes.Buffer
	b.WriteString("{\n")
	for _, f := range []struct {
		name string
		n    int
	}{{"eager_bytes", t.EagerBytes}, {"chunk_bytes", t.ChunkBytes}, {"piece_bytes", t.PieceBytes}} {
		if f.n != 0 {
			fmt.Fprintf(&b, "  %q: %d,\n", f.name, f.n)
		}
	}
	writeRules(&b, "rules", &t.groups)
	b.WriteString(",\n")
	writeRules(&b, "rules_across_hosts", &t.across)
	b.WriteString("\n}\n")
	return b.Bytes()
}

func writeRules(b *bytes.Buffer, field string, groups *[kinds][]group) {
	fmt.Fprintf(b, "  %q: {", field)
	before := "\n"
	for _, k := range Kinds() {
		if len(operations[k].ways) < 2 || len(groups[k]) == 0 {
			continue // nothing to choose
		}
		fmt.Fprintf(b, "%s    %q: [", before, k)
		before = "\n"
		for _, g := range groups[k] {
			for _, r := range g.rules {
				fmt.Fprintf(b, "%s      {\"ranks_from\": %d, \"bytes_from\": %d, \"algorithm\": %q}", before, g.ranks, r.Bytes, r.Algorithm)
				before = ",\n"
			}
		}
		b.WriteString("\n    ]")
		before = ",\n"
	}
	b.WriteString("\n  }")
}

// ParseTable reads the file form of a table. Unknown words, rules in descending
// order and algorithms of another kind are errors that name the line.
func ParseTable(data []byte) (*Table, error) {
	p := tableParser{data: data}
	t := DefaultTable()
	if err := p.table(t); err != nil {
		line := 1 + bytes.Count(data[:p.pos], []byte("\n"))
		return nil, fmt.Errorf("selection table: line %d: %w", line, err)
	}
	return t, nil
}

// A tableParser reads as much of JSON as a table has: objects, arrays, strings
// without escapes, whole numbers. Every rank links it, and encoding/json would cost
// each of them at its start.
type tableParser struct {
	data []byte
	pos  int // behind the token read last
}

// token is the next one: a string in its quotes, a number, or a character; empty
// at the end.
func (p *tableParser) token() string {
	for p.pos < len(p.data) && bytes.IndexByte([]byte(" \t\r\n"), p.data[p.pos]) >= 0 {
		p.pos++
	}
	rest := p.data[p.pos:]
	n := min(1, len(rest))
	switch {
	case n == 0:
	case rest[0] == '"':
		for n < len(rest) && rest[n] != '"' && rest[n] != '\\' && rest[n] >= ' ' {
			n++
		}
		if n < len(rest) && rest[n] == '"' {
			n++
		}
	case isWord(rest[0]):
		for n < len(rest) && isWord(rest[n]) {
			n++
		}
	}
	p.pos += n
	return string(rest[:n])
}

// isWord tells whether c is of a number, or of something else that is no string.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}

// peek is the next token, which stays the next.
func (p *tableParser) peek() string {
	at := p.pos
	t := p.token()
	p.pos = at
	return t
}

func (p *tableParser) expect(want string) error {
	if t := p.token(); t != want {
		return unexpected(t, want)
	}
	return nil
}

func unexpected(found, want string) error {
	if found == "" {
		return fmt.Errorf("the file ends, expected %s", want)
	}
	return fmt.Errorf("found %s, expected %s", found, want)
}

// text reads a string.
func (p *tableParser) text(what string) (string, error) {
	t := p.token()
	if len(t) < 2 || t[0] != '"' || t[len(t)-1] != '"' {
		return "", unexpected(t, what)
	}
	return t[1 : len(t)-1], nil
}

// list reads what is between two brackets, with commas between.
func (p *tableParser) list(begin, end string, element func() error) error {
	if err := p.expect(begin); err != nil {
		return err
	}
	if p.peek() == end {
		return p.expect(end)
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if p.peek() != "," {
			return p.expect(end)
		}
		p.token()
	}
}

// object reads one whose fields f reads, each at most once.
func (p *tableParser) object(f func(field string) error) error {
	var seen []string
	return p.list("{", "}", func() error {
		field, err := p.text("a field")
		if err != nil {
			return err
		}
		if slices.Contains(seen, field) {
			return fmt.Errorf("%q is there twice", field)
		}
		seen = append(seen, field)
		if err := p.expect(":"); err != nil {
			return err
		}
		return f(field)
	})
}

// number reads a number of at least least.
func (p *tableParser) number(field string, least int) (int, error) {
	t := p.token()
	v, err := strconv.ParseInt(t, 10, 64)
	if err != nil || t[0] == '+' || v < int64(least) || v > math.MaxInt32 {
		return 0, fmt.Errorf("%q is %s, expected a whole number from %d to %d", field, t, least, math.MaxInt32)
	}
	return int(v), nil
}

func (p *tableParser) table(t *Table) error {
	var named, across [kinds]bool // by the file
	err := p.object(func(field string) (err error) {
		switch field {
		case "eager_bytes":
			t.EagerBytes, err = p.number(field, descriptorLen)
		case "chunk_bytes":
			t.ChunkBytes, err = p.number(field, 1)
		case "piece_bytes":
			t.PieceBytes, err = p.number(field, 1)
		case "rules":
			err = p.object(func(kind string) error { return p.kind(&t.groups, &named, kind) })
		case "rules_across_hosts":
			err = p.object(func(kind string) error { return p.kind(&t.across, &across, kind) })
		default:
			err = fmt.Errorf("unknown field %q: expected eager_bytes, chunk_bytes, piece_bytes, rules or rules_across_hosts", field)
		}
		return err
	})
	if err != nil {
		return err
	}
	if rest := p.token(); rest != "" {
		return fmt.Errorf("found %s after the table", rest)
	}
	for k := range kinds {
		if named[k] && !across[k] {
			t.across[k] = nil
		}
	}
	return nil
}

// kind reads the rules of a kind into its place in all, and notes that it is named.
func (p *tableParser) kind(all *[kinds][]group, named *[kinds]bool, name string) error {
	k := kindNamed(name)
	if k == 0 {
		return fmt.Errorf("unknown collective %q", name)
	}
	// Rules and groups ascend, so each is put behind the others.
	var groups []group
	err := p.list("[", "]", func() error {
		ranks, rule, err := p.rule(name)
		switch {
		case err != nil:
			return err
		case groups == nil && ranks != 1:
			return fmt.Errorf("%s: the first rule is from %d ranks on, expected 1", name, ranks)
		case groups == nil || ranks > groups[len(groups)-1].ranks:
			groups = append(groups, group{ranks: ranks})
		case ranks < groups[len(groups)-1].ranks:
			return fmt.Errorf("%s: a rule from %d ranks on overlaps one from %d ranks on before it: they must ascend", name, ranks, groups[len(groups)-1].ranks)
		}
		g := &groups[len(groups)-1]
		if err := follows(k, ranks, g.rules, rule); err != nil {
			return err
		}
		g.rules = append(g.rules, rule)
		return nil
	})
	if err == nil && groups == nil {
		err = fmt.Errorf("%s has no rules", name)
	}
	all[k], named[k] = groups, true
	return err
}

func (p *tableParser) rule(name string) (ranks int, r Rule, err error) {
	found := 0
	err = p.object(func(field string) (err error) {
		found++
		switch field {
		case "ranks_from":
			ranks, err = p.number(field, 1)
		case "bytes_from":
			r.Bytes, err = p.number(field, 0)
		case "algorithm":
			var text string
			if text, err = p.text("an algorithm"); err != nil {
				return err
			}
			if i := slices.Index(algorithmNames[:], text); i > 0 {
				r.Algorithm = Algorithm(i)
			} else {
				err = fmt.Errorf("%s: unknown algorithm %q", name, text)
			}
		default:
			err = fmt.Errorf("%s: unknown field %q: expected ranks_from, bytes_from or algorithm", name, field)
		}
		return err
	})
	if err == nil && found != 3 {
		err = fmt.Errorf("%s: a rule needs ranks_from, bytes_from and algorithm", name)
	}
	return ranks, r, err
}
