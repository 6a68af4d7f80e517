package coll

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/wait"
)

// tableWith is the built-in table after a change, and with one algorithm for each of
// some kinds.
func tableWith(change func(*Table), ways ...Call) *Table {
	t := DefaultTable()
	if change != nil {
		change(t)
	}
	for _, w := range ways {
		if err := t.Always(w.Kind, w.Algorithm); err != nil {
			panic(err)
		}
	}
	return t
}

func TestTableFile(t *testing.T) {
	before := DefaultTable().Bytes()
	table := DefaultTable()
	if err := table.Set(AllToAll, 5, Rule{0, Bruck}, Rule{100, Direct}); err != nil {
		t.Fatal(err)
	}
	if err := table.Set(AllToAll, 5, Rule{0, Bruck}, Rule{200, Direct}); err != nil {
		t.Fatal(err)
	}
	if err := table.SetAcross(AllReduce, 7, Rule{0, TwoLevel}, Rule{100, Ring}); err != nil {
		t.Fatal(err)
	}
	if err := table.SetAcross(Scan, 7, Rule{0, Direct}); err != nil {
		t.Fatal(err)
	}
	table.EagerBytes, table.PieceBytes = 4096, 1000
	parsed, err := ParseTable(table.Bytes())
	if err != nil {
		t.Fatalf("%v in\n%s", err, table.Bytes())
	}
	if got, want := parsed.Bytes(), table.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if parsed.selection(6).hash() != table.selection(6).hash() {
		t.Error("the same table has another hash")
	}
	if parsed.selection(6).hash() == DefaultTable().selection(6).hash() {
		t.Error("another table has the same hash")
	}
	if !bytes.Equal(DefaultTable().Bytes(), before) {
		t.Errorf("the built-in table was changed: got\n%s\nwant\n%s", DefaultTable().Bytes(), before)
	}
	for _, c := range []struct {
		ranks, bytes int
		want         Algorithm
	}{{4, 8, Direct}, {5, 0, Bruck}, {5, 199, Bruck}, {7, 200, Direct}, {23, 199, Bruck}, {24, 128, Bruck}, {24, 129, Direct}, {25, 129, Direct}, {1000, 128, Bruck}} {
		a, _, _ := parsed.selection(c.ranks).algorithm(&Call{Kind: AllToAll, Bytes: c.bytes})
		if a != c.want {
			t.Errorf("%d ranks, %d bytes: got %v, want %v", c.ranks, c.bytes, a, c.want)
		}
	}
}

// Rules across hosts are for teams on several hosts of which some members share one. A
// kind that a file names has none but those that it names too.
func TestRulesAcrossHosts(t *testing.T) {
	text := `{"rules": {"allreduce": [{"ranks_from": 1, "bytes_from": 0, "algorithm": "ring"}]}`
	across := `,"rules_across_hosts": {"allreduce": [{"ranks_from": 1, "bytes_from": 0, "algorithm": "two-level"}, {"ranks_from": 3, "bytes_from": 0, "algorithm": "binomial"}]}`
	for _, c := range []struct {
		text   string
		shared bool
		ranks  int
		want   string
	}{
		{"{}", false, 4, "direct (table: from 3 ranks on, from 0 bytes on)"},
		{"{}", true, 4, "two-level (table: from 1 ranks on across hosts, from 0 bytes on)"},
		{text + "}", true, 4, "ring (table: from 1 ranks on, from 0 bytes on)"},
		{text + across + "}", false, 4, "ring (table: from 1 ranks on, from 0 bytes on)"},
		{text + across + "}", true, 4, "ring (table: from 3 ranks on across hosts, from 0 bytes on, where it is binomial; the bits would not be those of ring on one host)"},
		{text + across + "}", true, 3, "ring (table: from 3 ranks on across hosts, from 0 bytes on, where it is binomial; the bits would not be those of ring on one host)"},
		{strings.Replace(text, "ring", "direct", 1) + across + "}", true, 2, "two-level (table: from 1 ranks on across hosts, from 0 bytes on)"},
	} {
		table, err := ParseTable([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		s := table.selection(c.ranks)
		if c.shared {
			s.hosts = hostsOf(2, max(1, c.ranks-2))
		}
		a, reason := s.explain(&Call{Kind: AllReduce, Size: c.ranks, Bytes: 8, Elem: 8})
		if got := fmt.Sprintf("%v (%s)", a, reason); got != c.want {
			t.Errorf("%s, shared %v, %d ranks: got %q, want %q", c.text, c.shared, c.ranks, got, c.want)
		}
	}
}

// New rules for a kind hold across hosts too, as those of a file do.
func TestSetForgetsRulesAcrossHosts(t *testing.T) {
	table := DefaultTable()
	if err := table.Set(AllReduce, 2, Rule{0, Ring}); err != nil {
		t.Fatal(err)
	}
	if _, rules := table.RulesAcross(AllReduce, 4); rules != nil {
		t.Errorf("rules across hosts %v, want none", rules)
	}
	read, err := ParseTable(table.Bytes())
	if err != nil || !bytes.Equal(read.Bytes(), table.Bytes()) {
		t.Errorf("read back (%v):\n%s\nwant\n%s", err, read.Bytes(), table.Bytes())
	}
}

func TestTableFileMistakes(t *testing.T) {
	rules := func(text string) string { return "{\n\"rules\": {\n\"alltoall\": [\n" + text + "]}}" }
	first := `{"ranks_from": 1, "bytes_from": 0, "algorithm": "direct"}`
	for _, c := range []struct{ text, want string }{
		{``, "line 1: the file ends, expected {"},
		{"{\n\"rules\": {\n", "the file ends, expected a field"},
		{"{\n\n\"rulez\": {}}", `line 3: unknown field "rulez"`},
		{`{"eager_bytes": 1}`, `"eager_bytes" is 1, expected a whole number from 24`},
		{`{"chunk_bytes": 1.5}`, `"chunk_bytes" is 1.5`},
		{`{"piece_bytes": "8"}`, `"piece_bytes" is "8"`},
		{`{"piece_bytes": 8, "piece_bytes": 8}`, `"piece_bytes" is there twice`},
		{`{"rules": {"alltoal": []}}`, `unknown collective "alltoal"`},
		{`{"rules": {"free": []}}`, `unknown collective "free"`},
		{rules(``), "alltoall has no rules"},
		{rules(`{"ranks_from": 2, "bytes_from": 0, "algorithm": "direct"}`), "line 4: alltoall: the first rule is from 2 ranks on, expected 1"},
		{rules(`{"ranks_from": 1, "bytes_from": 4, "algorithm": "direct"}`), "line 4: alltoall from 1 ranks on: the first rule begins at 4 bytes, expected 0"},
		{rules(first + ",\n" + first), "line 5: alltoall from 1 ranks on: the rule from 0 bytes on does not ascend from the one at 0"},
		{rules(`{"ranks_from": 1, "bytes_from": 0, "algorithm": "ring"}`), "line 4: alltoall has no algorithm ring"},
		{rules(`{"ranks_from": 1, "bytes_from": 0, "algorithm": "auto"}`), `unknown algorithm "auto"`},
		{rules(`{"ranks_from": 1, "bytes_from": 0}`), "line 4: alltoall: a rule needs"},
		{rules(`{"ranks_from": 1, "bytes_to": 0}`), `line 4: alltoall: unknown field "bytes_to"`},
		{rules(first + ",\n" + `{"ranks_from": 4, "bytes_from": 0, "algorithm": "bruck"}` + ",\n" + first), "line 6: alltoall: a rule from 1 ranks on overlaps"},
		{`{"rules_across_hosts": {"alltoall": []}}`, "alltoall has no rules"},
		{`{"rules_across": {}}`, "piece_bytes, rules or rules_across_hosts"},
		{`{} {}`, "after the table"},
		{"{\n\"rules\": [", "line 2: found [, expected {"},
		{"{\n\"rules\" {", "line 2: found {, expected :"},
		{"{\"rules\": {},}", "found }, expected a field"},
		{"{\"rules\": {\"alltoall\": [" + first + ",]}}", "found ], expected {"},
		{`{"ru\u006ces": {}}`, `found "ru, expected a field`},
		{`{"piece_bytes": +8}`, `is +8, expected`},
		{`{"piece_bytes": }`, `is }, expected`},
		{`{"piece_bytes":`, `"piece_bytes" is , expected`},
	} {
		if _, err := ParseTable([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\ngot %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add(DefaultTable().Bytes())
	f.Add([]byte(`{"eager_bytes": 100, "rules": {"scan": [{"ranks_from": 1, "bytes_from": 0, "algorithm": "chain"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ParseTable(data)
		if err != nil {
			return
		}
		if err := table.validate(); err != nil {
			t.Fatal(err)
		}
		again, err := ParseTable(table.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), table.Bytes()) {
			t.Fatalf("%v: %s", err, table.Bytes())
		}
	})
}

// Every rule of the built-in table names an algorithm that there is, in order.
func TestBuiltInTable(t *testing.T) {
	if err := builtIn.validate(); err != nil {
		t.Fatal(err)
	}
	var table Table
	for k, groups := range builtIn.groups {
		for _, g := range groups {
			if Kind(k) == farewell {
				continue
			}
			if err := table.Set(Kind(k), g.ranks, g.rules...); err != nil {
				t.Error(err)
			}
		}
	}
	for k, groups := range builtIn.across {
		for _, g := range groups {
			if err := table.SetAcross(Kind(k), g.ranks, g.rules...); err != nil {
				t.Error(err)
			}
		}
	}
	if got, want := table.Bytes(), builtIn.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("not in order: got\n%s\nwant\n%s", want, got)
	}
}

func TestMembersCompareTables(t *testing.T) {
	nw := network{n: 2}
	nw.open(t)
	ctx := testenv.Deadline(t, time.Minute)
	other := DefaultTable()
	if err := other.Set(Bcast, 2, Rule{0, Direct}, Rule{77, Binomial}); err != nil {
		t.Fatal(err)
	}
	nw.each(t, func(m *member) error {
		cfg := nw.config(m, nw.meeting.exchange(m.rank))
		if m.rank == 1 {
			cfg.Table = other
		}
		_, err := NewTeam(ctx, cfg)
		if err == nil || !strings.Contains(err.Error(), "made the team with another selection table") || !strings.Contains(err.Error(), "member") {
			t.Errorf("rank %d: got %v", m.rank, err)
		}
		return nil
	})
}

// A team with a table takes the algorithms and the sizes that it says.
func TestTeamTakesTable(t *testing.T) {
	table := DefaultTable()
	table.EagerBytes = 100
	if err := table.Set(Bcast, 3, Rule{0, Direct}, Rule{77, ScatterAllGather}); err != nil {
		t.Fatal(err)
	}
	nw := network{n: 3, change: func(cfg *TeamConfig) { cfg.Table = table }}
	nw.run(t, func(ctx context.Context, m *member) error {
		for _, c := range []struct {
			n    int
			want string
		}{{76, "direct, in messages"}, {77, "scatter-allgather, by descriptor"}, {101, "scatter-allgather, by descriptor"}} {
			n, want := c.n, c.want
			if got := m.team.Explain(Args{Kind: Bcast, Bytes: n}); !strings.Contains(got, want) {
				t.Errorf("%d bytes: %s, want %s", n, got, want)
			}
			if err := m.team.Bcast(ctx, Buffer{Mem: make([]byte, n)}, n, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// A file of very many rules takes memory, and so time, with their number, not with its
// square.
func TestLongTable(t *testing.T) {
	const n = 200_000
	var b bytes.Buffer
	b.WriteString(`{"rules": {"alltoall": [`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"ranks_from": 1, "bytes_from": %d, "algorithm": "direct"}`, i)
	}
	b.WriteString(`]}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table, err := ParseTable(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, rules := table.Rules(AllToAll, 5); len(rules) != n || rules[n-1].Bytes != n-1 {
		t.Errorf("%d rules, want %d", len(rules), n)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<30 { // the square would be 320 GB
		t.Errorf("%d rules took %d bytes", n, took)
	}
}

// Where one member shares its CPU with others, the barrier goes by way of rank 0 in all.
func TestCrowdedTeamsMeetAtRankZero(t *testing.T) {
	for _, c := range []struct {
		ranks, crowded int
		want           string
	}{{3, 0, "barrier on 3 ranks: direct"}, {3, 1, "barrier on 3 ranks: central"}, {3, 3, "members share CPUs"}, {2, 2, "barrier on 2 ranks: direct"}} {
		nw := network{n: c.ranks, change: func(cfg *TeamConfig) {
			cfg.Waiter = wait.New(wait.Config{Scheduler: true, Oversubscribed: cfg.Rank < c.crowded})
		}}
		nw.run(t, func(ctx context.Context, m *member) error {
			if got := m.team.Explain(Args{Kind: Barrier}); !strings.Contains(got, c.want) {
				return fmt.Errorf("%d of %d share CPUs: %q, want %q in it", c.crowded, c.ranks, got, c.want)
			}
			return m.team.Barrier(ctx)
		})
	}
}
