package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/launcher"
)

// glass is a terminal, of endless height, that knows what a screen writes.
type glass struct {
	cols     int
	lines    [][]rune
	row, col int
	t        *testing.T
}

func (g *glass) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		for len(g.lines) <= g.row {
			g.lines = append(g.lines, nil)
		}
		switch r := text[i]; r {
		case '\r':
			g.col = 0
		case '\n': // as behind onlcr
			g.row, g.col = g.row+1, 0
		case 0x1b:
			switch string(text[i : i+3]) {
			case "\x1b[A":
				if g.row--; g.row < 0 {
					g.t.Fatal("above the first line")
				}
			case "\x1b[J":
				g.lines = g.lines[:g.row+1]
				g.lines[g.row] = g.lines[g.row][:min(g.col, len(g.lines[g.row]))]
			default:
				g.t.Fatalf("escape %q", string(text[i:i+3]))
			}
			i += 2
		default:
			if g.col == g.cols {
				g.row, g.col = g.row+1, 0
			}
			for len(g.lines) <= g.row {
				g.lines = append(g.lines, nil)
			}
			line := g.lines[g.row]
			for len(line) <= g.col {
				line = append(line, ' ')
			}
			line[g.col] = r
			g.lines[g.row] = line
			g.col++
		}
	}
	return len(p), nil
}

func (g *glass) String() string {
	var b strings.Builder
	for i, line := range g.lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(line))
	}
	return strings.TrimRight(b.String(), "\n")
}

// Whatever is written while tables come and go, at the end there is what would be
// there without them; and in between it is above the table.
func TestScreen(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		const cols = 20
		with, without := &glass{cols: cols, t: t}, &glass{cols: cols, t: t}
		s := &screen{w: with, size: func() (int, int) { return 10, cols }}
		for range random.IntN(30) {
			switch random.IntN(3) {
			case 0:
				var table []string
				for i := range random.IntN(8) {
					table = append(table, strings.Repeat(fmt.Sprint(i), random.IntN(30)))
				}
				s.show(table)
			default:
				text := ""
				for range random.IntN(4) {
					text += strings.Repeat(string('a'+rune(random.IntN(26))), random.IntN(45)) + []string{"\n", "", "\r"}[random.IntN(3)]
				}
				fmt.Fprint(s, text)
				fmt.Fprint(without, text)
			}
			table := s.table
			if most := 5; len(table) > most {
				table = table[:most]
			}
			want := without.String()
			for _, line := range table {
				line = cut(line, cols-1)
				want += "\n" + line
			}
			if got := with.String(); len(table) > 0 && !strings.HasSuffix(got, strings.TrimLeft(strings.TrimRight(want[len(without.String()):], "\n"), "\n")) {
				t.Fatalf("the table is not at the bottom:\n%s\nwant\n%s", got, want)
			}
		}
		s.show(nil)
		if got, want := with.String(), without.String(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"abc": "abc", "abcdef": "abcd", "日本語": "日本", "ab日本": "ab日"} {
		if got := cut(text, 4); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := clean("\x1b[31mred\x1b[0m\tend\x1b"); got != "red end" {
		t.Errorf("got %q", got)
	}
}

func TestProgress(t *testing.T) {
	now := time.Unix(1000, 0)
	g := &glass{cols: 100, t: t}
	s := &screen{w: g, size: func() (int, int) { return 24, 100 }}
	p := newProgress(s, s, func() time.Time { return now })
	p.placed(launcher.Placement{Ranks: []launcher.PlacedRank{{Host: 0}, {Host: 1}}})
	if got := g.String(); got != "gorun: starting 2 ranks on 2 hosts, 0.00 s" {
		t.Errorf("got %q", got)
	}
	p.watch(launcher.Change{Kind: launcher.AgentReady, Host: "a", Rank: -1})
	if got := g.String(); got != "gorun: starting agents: 1 of 2 hosts have answered, 0.00 s" {
		t.Errorf("got %q", got)
	}
	for rank, host := range []string{"a", "b"} {
		p.watch(launcher.Change{Kind: launcher.RankStarted, Rank: rank, Host: host})
		p.watch(launcher.Change{Kind: launcher.RankUses, Rank: rank, Host: host, CPU: time.Second, RSS: 3 << 20})
	}
	fmt.Fprint(s, "hello\n")
	now = now.Add(2 * time.Second)
	p.watch(launcher.Change{Kind: launcher.RankSaid, Rank: 1, Host: "b", Line: "\x1b[1mhello"})
	p.watch(launcher.Change{Kind: launcher.RankUses, Rank: 1, Host: "b", CPU: 2 * time.Second, RSS: 5 << 30})
	p.watch(launcher.Change{Kind: launcher.RankEnded, Rank: 0, Host: "a", End: launcher.RankEnd{Status: 3}})
	want := `hello
gorun: 1 of 2 ranks have ended after 2.00 s, 1 with status 3
  rank  host          state          CPU    memory  last line
     0  a             status 3        0%     3 MiB  
     1  b             running        50%   5.0 GiB  hello`
	if got := g.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p.watch(launcher.Change{Kind: launcher.RankEnded, Rank: 1, Host: "b", End: launcher.RankEnd{Status: 143, Told: true}})
	p.close()
	if got, want := g.String(), "hello\ngorun: all 2 ranks have ended after 2.00 s, 1 with status 3, 1 told to end"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Failed ranks come first, then those that are silent while most others write, then
// the rest in order.
func TestProgressShowsFailedAndSlowRanksFirst(t *testing.T) {
	now := time.Unix(1000, 0)
	g := &glass{cols: 100, t: t}
	s := &screen{w: g, size: func() (int, int) { return 16, 100 }} // room for five ranks
	p := newProgress(s, s, func() time.Time { return now })
	p.placed(launcher.Placement{Ranks: make([]launcher.PlacedRank, 7)})
	order := func() string {
		var list []string
		for _, line := range strings.Split(g.String(), "\n")[2:] {
			list = append(list, strings.Join(strings.Fields(line)[:2], " "))
		}
		return strings.Join(list, ", ")
	}
	for rank := range 7 {
		p.watch(launcher.Change{Kind: launcher.RankStarted, Rank: rank, Host: "a"})
	}
	now = now.Add(slowAfter)
	p.watch(launcher.Change{Kind: launcher.RankSaid, Rank: 0, Host: "a", Line: "step 1"})
	if got, want := order(), "0 a, 1 a, 2 a, 3 a, 4 a, ... and"; got != want || strings.Contains(g.String(), slow) {
		t.Errorf("one rank writes: got %s, want %s and none slow", got, want)
	}
	for _, rank := range []int{1, 2, 3, 6} {
		p.watch(launcher.Change{Kind: launcher.RankSaid, Rank: rank, Host: "a", Line: "step 1"})
	}
	p.watch(launcher.Change{Kind: launcher.RankEnded, Rank: 0, Host: "a"})
	p.watch(launcher.Change{Kind: launcher.RankEnded, Rank: 6, Host: "a", End: launcher.RankEnd{Status: 3}})
	if got, want := order(), "6 a, 4 a, 5 a, 1 a, 2 a, ... and"; got != want || strings.Count(g.String(), slow) != 2 {
		t.Errorf("rank 6 failed, 4 and 5 are silent: got %s, want %s, in\n%s", got, want, g)
	}
	p.watch(launcher.Change{Kind: launcher.RankSaid, Rank: 4, Host: "a", Line: "step 1"})
	p.watch(launcher.Change{Kind: launcher.RankEnded, Rank: 1, Host: "a", End: launcher.RankEnd{Told: true, Signal: 15}})
	if got, want := order(), "6 a, 5 a, 2 a, 3 a, 4 a, ... and"; got != want {
		t.Errorf("rank 4 has written: got %s, want %s", got, want)
	}
}

func TestProgressInLines(t *testing.T) {
	now := time.Unix(1000, 0)
	var b strings.Builder
	p := newProgress(nil, &b, func() time.Time { return now })
	p.placed(launcher.Placement{Ranks: make([]launcher.PlacedRank, 2)})
	for rank := range 2 {
		p.watch(launcher.Change{Kind: launcher.RankStarted, Rank: rank})
	}
	for rank := range 2 {
		p.watch(launcher.Change{Kind: launcher.RankEnded, Rank: rank})
	}
	p.close()
	if got, want := b.String(), "gorun: 2 ranks started after 0.00 s\ngorun: all 2 ranks have ended after 0.00 s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
