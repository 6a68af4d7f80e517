package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func cmdMatrices(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 4, "matrices RANKS COLUMNS BLOCK FILE")
	ts.Check(checkMatrices(ts.ReadFile(args[3]), number(ts, args[0]), number(ts, args[1]), number(ts, args[2])))
}

// rowForm is a row as the DOCA application prints it: columns of six, left
// justified, and a bar.
var rowForm = regexp.MustCompile(`^Rank (\d+) \| ((?:\d{1,4} +)+)\|$`)

// checkMatrices finds both matrices in a2a's output and holds the receive
// matrix against the transposed blocks of the send matrix. Columns after the
// last block must be 0 in both.
func checkMatrices(text string, ranks, columns, block int) error {
	lines := strings.Split(text, "\n")
	send, err := readMatrix(lines, "-----send buffs-----", ranks, columns)
	if err != nil {
		return err
	}
	recv, err := readMatrix(lines, "-----recv buffs-----", ranks, columns)
	if err != nil {
		return err
	}
	differ := false
	for r := range ranks {
		for c := range columns {
			want := 0
			if from := c / block; from < ranks {
				want = send[from][r*block+c%block]
			} else if send[r][c] != 0 {
				return fmt.Errorf("send row %d column %d is %d, want 0: it belongs to no block", r, c, send[r][c])
			}
			if recv[r][c] != want {
				return fmt.Errorf("recv row %d column %d is %d, want %d", r, c, recv[r][c], want)
			}
			differ = differ || send[r][c] != send[0][0]
		}
	}
	if ranks*columns > 4 && !differ {
		return fmt.Errorf("all numbers are %d: that proves nothing", send[0][0])
	}
	return nil
}

func readMatrix(lines []string, title string, ranks, columns int) ([][]int, error) {
	at := slices.Index(lines, title)
	if at < 0 || len(lines) < at+1+ranks {
		return nil, fmt.Errorf("found no %q with %d rows after it", title, ranks)
	}
	var rows [][]int
	for r, line := range lines[at+1 : at+1+ranks] {
		m := rowForm.FindStringSubmatch(line)
		if m == nil || m[1] != strconv.Itoa(r) {
			return nil, fmt.Errorf("row %d after %q is %q", r, title, line)
		}
		if len(m[2]) != 6*columns {
			return nil, fmt.Errorf("row %d after %q has %d characters of columns, want %d columns of 6: %q", r, title, len(m[2]), columns, line)
		}
		row := make([]int, columns)
		for c := range row {
			cell := m[2][6*c : 6*c+6]
			n, err := strconv.Atoi(strings.TrimRight(cell, " "))
			if err != nil || n > 9999 {
				return nil, fmt.Errorf("row %d after %q: column %d is %q", r, title, c, cell)
			}
			row[c] = n
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func TestMatrixChecker(t *testing.T) {
	good := "-----send buffs-----\nRank 0 | 1     2     0     |\nRank 1 | 3     4567  0     |\n" +
		"-----recv buffs-----\nRank 0 | 1     3     0     |\nRank 1 | 2     4567  0     |\n"
	for _, c := range []struct {
		name, old, new string
		ok             bool
	}{
		{"good", "", "", true},
		{"not transposed", "Rank 0 | 1     3     0     |", "Rank 0 | 1     2     0     |", false},
		{"left-over column not 0", "3     4567  0", "3     4567  1", false},
		{"narrow column", "2     4567  0     |", "2     4567 0     |", false},
		{"rows swapped", "Rank 1 | 2", "Rank 0 | 2", false},
		{"no matrix", "recv buffs", "receive", false},
	} {
		if err := checkMatrices(strings.Replace(good, c.old, c.new, 1), 2, 3, 1); (err == nil) != c.ok {
			t.Errorf("%s: %v, want an error: %v", c.name, err, !c.ok)
		}
	}
}

func cmdResults(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "results FILE RANKS")
	ts.Check(checkResults(ts.ReadFile(args[0]), number(ts, args[1])))
}

// checkResults reads a2a's results. A call is one RDMA write for each ordered
// pair of different ranks, and a copy of each own block.
func checkResults(text string, ranks int) error {
	var r struct {
		Ranks   int     `json:"ranks"`
		PerPeer int     `json:"bytes_per_peer"`
		SetUp   float64 `json:"set_up_us"`
		First   float64 `json:"first_call_us"`
		Steady  struct {
			Iterations int     `json:"iterations"`
			Min        float64 `json:"min_us"`
			Median     float64 `json:"median_us"`
			P99        float64 `json:"p99_us"`
		} `json:"steady_state"`
		Verified int `json:"verified_calls"`
		OneCall  struct {
			Writes     int `json:"writes"`
			WriteBytes int `json:"write_bytes"`
			Copies     int `json:"copies"`
			CopyBytes  int `json:"copy_bytes"`
			Device     int `json:"device_writes"`
		} `json:"one_call"`
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	pairs := ranks * (ranks - 1)
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"ranks", r.Ranks == ranks},
		{"times above 0", r.SetUp > 0 && r.First > 0 && r.Steady.Min > 0},
		{"min <= median <= p99", r.Steady.Min <= r.Steady.Median && r.Steady.Median <= r.Steady.P99},
		{"more calls verified than timed", r.Verified > r.Steady.Iterations},
		{"writes: one for each pair", r.OneCall.Writes == pairs},
		{"bytes written", r.OneCall.WriteBytes == pairs*r.PerPeer},
		{"copies: one for each rank", r.OneCall.Copies == ranks},
		// Over TCP a write counts when its answer comes, be it in a later call: tests of cmd/a2a hold how many there are.
		{"the device writes", r.OneCall.Device > 0 || pairs == 0},
		{"bytes copied", r.OneCall.CopyBytes == ranks*r.PerPeer},
	} {
		if !c.ok {
			return fmt.Errorf("%s: not so in\n%s", c.what, text)
		}
	}
	return nil
}
