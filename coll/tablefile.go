package coll

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
//	  }
//	}

// Bytes is the table's file form, which ParseTable reads.
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
	b.WriteString("  \"rules\": {")
	before := "\n"
	for _, k := range Kinds() {
		if len(choices[k]) < 2 {
			continue // nothing to choose
		}
		fmt.Fprintf(&b, "%s    %q: [", before, k)
		before = "\n"
		for _, g := range t.groups[k] {
			for _, r := range g.rules {
				fmt.Fprintf(&b, "%s      {\"ranks_from\": %d, \"bytes_from\": %d, \"algorithm\": %q}", before, g.ranks, r.Bytes, r.Algorithm)
				before = ",\n"
			}
		}
		b.WriteString("\n    ]")
		before = ",\n"
	}
	b.WriteString("\n  }\n}\n")
	return b.Bytes()
}

// ParseTable reads a table's file form. What it does not know, and rules that do
// not ascend or do not fit, are errors that name the line.
func ParseTable(data []byte) (*Table, error) {
	p := tableParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	t := DefaultTable()
	if err := p.table(t); err != nil {
		line := 1 + bytes.Count(data[:min(p.at(err), int64(len(data)))], []byte("\n"))
		return nil, fmt.Errorf("selection table: line %d: %w", line, err)
	}
	return t, nil
}

type tableParser struct {
	data []byte
	dec  *json.Decoder
}

// at is where in the data the parser is, or the decoder saw an error.
func (p *tableParser) at(err error) int64 {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset
	}
	return p.dec.InputOffset()
}

// token is the next one; what the file lacks is not the end of it.
func (p *tableParser) token() (json.Token, error) {
	t, err := p.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

func (p *tableParser) expect(d json.Delim) error {
	t, err := p.token()
	if err != nil {
		return err
	}
	if t != d {
		return fmt.Errorf("found %v, expected %v", t, d)
	}
	return nil
}

// object reads one whose fields f reads, each at most once.
func (p *tableParser) object(f func(field string) error) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	var seen []string
	for p.dec.More() {
		t, err := p.token()
		if err != nil {
			return err
		}
		field, ok := t.(string)
		if !ok {
			return fmt.Errorf("found %v, expected a field", t)
		}
		if slices.Contains(seen, field) {
			return fmt.Errorf("%q is there twice", field)
		}
		seen = append(seen, field)
		if err := f(field); err != nil {
			return err
		}
	}
	return p.expect('}')
}

// number reads a number of at least least.
func (p *tableParser) number(field string, least int) (int, error) {
	t, err := p.token()
	if err != nil {
		return 0, err
	}
	n, ok := t.(json.Number)
	v, bad := strconv.ParseInt(n.String(), 10, 64)
	if !ok || bad != nil || v < int64(least) || v > math.MaxInt32 {
		return 0, fmt.Errorf("%q is %v, expected a whole number from %d to %d", field, t, least, math.MaxInt32)
	}
	return int(v), nil
}

func (p *tableParser) table(t *Table) error {
	err := p.object(func(field string) (err error) {
		switch field {
		case "eager_bytes":
			t.EagerBytes, err = p.number(field, descriptorLen)
		case "chunk_bytes":
			t.ChunkBytes, err = p.number(field, 1)
		case "piece_bytes":
			t.PieceBytes, err = p.number(field, 1)
		case "rules":
			err = p.object(func(kind string) error { return p.kind(t, kind) })
		default:
			err = fmt.Errorf("unknown field %q: eager_bytes, chunk_bytes, piece_bytes and rules are known", field)
		}
		return err
	})
	if err != nil {
		return err
	}
	if rest, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("found %v after the table", rest)
	}
	return nil
}

func (p *tableParser) kind(t *Table, name string) error {
	k := Kind(slices.Index(kindNames[:], name))
	if k < Barrier || k >= farewell {
		return fmt.Errorf("unknown collective %q", name)
	}
	if err := p.expect('['); err != nil {
		return err
	}
	t.groups[k] = nil
	var g group
	for p.dec.More() {
		ranks, rule, err := p.rule(name)
		if err != nil {
			return err
		}
		if len(t.groups[k]) == 0 && g.ranks == 0 && ranks != 1 {
			return fmt.Errorf("%s: the first rule is from %d ranks on, expected 1", name, ranks)
		}
		switch {
		case ranks < g.ranks:
			return fmt.Errorf("%s: a rule from %d ranks on overlaps one from %d ranks on before it: they must ascend", name, ranks, g.ranks)
		case ranks > g.ranks:
			g = group{ranks: ranks}
		}
		g.rules = append(g.rules, rule)
		if err := t.Set(k, ranks, g.rules...); err != nil {
			return err
		}
	}
	if g.ranks == 0 {
		return fmt.Errorf("%s has no rules", name)
	}
	return p.expect(']')
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
			var t json.Token
			if t, err = p.token(); err != nil {
				return err
			}
			text, _ := t.(string)
			if i := slices.Index(algorithmNames[:], text); i > 0 {
				r.Algorithm = Algorithm(i)
			} else {
				err = fmt.Errorf("%s: unknown algorithm %v", name, t)
			}
		default:
			err = fmt.Errorf("%s: unknown field %q: ranks_from, bytes_from and algorithm are known", name, field)
		}
		return err
	})
	if err == nil && found != 3 {
		err = fmt.Errorf("%s: a rule needs ranks_from, bytes_from and algorithm", name)
	}
	return ranks, r, err
}
