package pmi

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the engine does into testdata/*.txt")

// A transcript is a dialogue of ranks with their engine, one thing a line:
//
//	# comment, and blank lines
//	job size=4 ranks=0,1    first: the job, and the ranks served here (default all)
//	2> line                 rank 2 sends a line; a final \ sends no newline
//	2; command              rank 2 sends a command of PMI-2; its length is put before it
//	2. gone                 its connection ends
//	2! answer               what came of rank 2's spawn: ok, codes=0,1 or an error
//	2< line                 what rank 2 is told
//	= event                 what the launcher is told
//
// The fences of a job with one host complete at once, and so do names.
type transcript struct {
	e      *Engine
	names  names
	single bool
	out    strings.Builder
}

func (tr *transcript) run(text string) error {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
			fmt.Fprintln(&tr.out, line)
			continue
		case strings.HasPrefix(line, "job "):
			fmt.Fprintln(&tr.out, line)
			if err := tr.job(line); err != nil {
				return err
			}
			continue
		case line[0] == '=':
			continue
		}
		digits := strings.IndexAny(line, "<>;.!")
		if digits < 1 {
			return fmt.Errorf("bad line %q", line)
		}
		rank, err := strconv.Atoi(line[:digits])
		if err != nil {
			return fmt.Errorf("bad line %q", line)
		}
		rest := strings.TrimPrefix(line[digits+1:], " ")
		switch line[digits] {
		case '>':
			fmt.Fprintln(&tr.out, line)
			data := rest + "\n"
			if cut, ok := strings.CutSuffix(rest, `\`); ok {
				data = cut
			}
			tr.events(tr.e.Receive(rank, []byte(data)))
		case ';':
			fmt.Fprintln(&tr.out, line)
			tr.events(tr.e.Receive(rank, framed(rest)))
		case '.':
			fmt.Fprintln(&tr.out, line)
			tr.events(tr.e.Disconnect(rank))
		case '!':
			fmt.Fprintln(&tr.out, line)
			var a SpawnAnswer
			if list, ok := strings.CutPrefix(rest, "codes="); ok {
				for _, code := range strings.Split(list, ",") {
					n, err := strconv.Atoi(code)
					if err != nil {
						return err
					}
					a.Codes = append(a.Codes, n)
				}
			} else if rest != "ok" {
				a.Err = rest
			}
			tr.events(tr.e.SpawnDone(rank, a))
		}
	}
	return lines.Err()
}

func (tr *transcript) job(line string) error {
	cfg := EngineConfig{KVSName: "kvs_0", Universe: 8}
	for _, word := range strings.Fields(line)[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "size":
			cfg.Size, _ = strconv.Atoi(value)
		case "ranks":
			for _, r := range strings.Split(value, ",") {
				n, err := strconv.Atoi(r)
				if err != nil {
					return err
				}
				cfg.Ranks = append(cfg.Ranks, n)
			}
		default:
			return fmt.Errorf("bad word %q", word)
		}
	}
	if cfg.Ranks == nil {
		for r := range cfg.Size {
			cfg.Ranks = append(cfg.Ranks, r)
		}
	}
	tr.single = len(cfg.Ranks) == cfg.Size
	cfg.Mapping = Mapping(make([]int, cfg.Size))
	tr.e = NewEngine(cfg)
	return nil
}

func (tr *transcript) events(events []Event) {
	for _, ev := range events {
		switch ev := ev.(type) {
		case Reply:
			for _, line := range said(ev.Data) {
				text := strings.TrimSuffix(string(line), "\n")
				if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
					text = strings.Trim(strconv.QuoteToASCII(text), `"`)
				}
				fmt.Fprintf(&tr.out, "%d< %s\n", ev.Rank, text)
			}
		case Fence:
			what := "fence"
			if ev.Closing {
				what = "closing fence"
			}
			fmt.Fprintf(&tr.out, "= %s %d\n", what, ev.Epoch)
			if tr.single {
				tr.events(tr.e.FenceDone(ev.Epoch, [][]byte{ev.Contribution}))
			}
		case Abort:
			fmt.Fprintf(&tr.out, "= rank %d aborts with %d %q\n", ev.Rank, ev.Code, ev.Message)
		case Spawn:
			fmt.Fprintf(&tr.out, "= rank %d spawns with %v\n", ev.Rank, ev.Preset)
			for _, app := range ev.Apps {
				fmt.Fprintf(&tr.out, "=   %d x %s %q %q\n", app.N, app.Program, app.Args, app.Info)
			}
		case Name:
			tr.events(tr.e.NameDone(ev.Rank, tr.names.do(ev.Query)))
		case Finalized:
			fmt.Fprintf(&tr.out, "= rank %d has finalized\n", ev.Rank)
		case Violation:
			fmt.Fprintf(&tr.out, "= violation: %v\n", ev.Err)
		}
	}
}

// framed is a command of PMI-2 with its length.
func framed(command string) []byte { return fmt.Appendf(nil, "%6d%s", len(command), command) }

// said cuts a reply into its lines, and the commands of PMI-2 among them.
func said(data []byte) (parts [][]byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n') + 1
		if n, err := frameLength(data[:min(lengthDigits, len(data))]); err == nil && bytes.HasPrefix(data[lengthDigits:], []byte("cmd=")) {
			end = min(lengthDigits+n, len(data))
		}
		if end == 0 {
			end = len(data)
		}
		parts, data = append(parts, data[:end]), data[end:]
	}
	return parts
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var tr transcript
			if err := tr.run(string(want)); err != nil {
				t.Fatal(err)
			}
			got := tr.out.String()
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got == string(want) {
				return
			}
			g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
			for i := range g {
				if i >= len(w) || g[i] != w[i] {
					t.Fatalf("line %d:\n got %q\nwant %q", i+1, g[i], strings.Join(w[min(i, len(w)):min(i+1, len(w))], ""))
				}
			}
			t.Fatalf("line %d: got the end, want %q", len(g), w[len(g)])
		})
	}
}
