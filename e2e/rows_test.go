package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func cmdRows(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "rows FILE COUNT field=value...")
	ts.Check(checkRows(ts.ReadFile(args[0]), args[1], args[2:]))
}

// rowFields are what every row of gorun-bench's results has, with a number
// where want is 0 and a text where it is "".
var rowFields = map[string]any{"benchmark": "", "system": "", "np": 0., "bytes": 0., "type": "", "memory": "", "median_us": 0., "p10_us": 0.,
	"p90_us": 0., "p99_us": 0., "runs": 0., "iterations": 0., "verified": false}

// checkRows finds a header and as many rows with these values in a file of
// results ("some" for one or more), each with all fields, verified and timed.
func checkRows(text, count string, wanted []string) error {
	lines := bufio.NewScanner(strings.NewReader(text))
	if !lines.Scan() {
		return fmt.Errorf("found no header")
	}
	var header struct {
		Machine  map[string]any
		Versions map[string]string
		Command  string
	}
	if err := json.Unmarshal(lines.Bytes(), &header); err != nil {
		return fmt.Errorf("header %s: %w", lines.Text(), err)
	}
	if header.Machine["cpu"] == "" || header.Machine["kernel"] == "" || header.Versions["gorun"] == "" || !strings.HasPrefix(header.Command, "gorun-bench ") {
		return fmt.Errorf("header %s lacks the machine, the versions or the command", lines.Text())
	}
	found := 0
	for lines.Scan() {
		var row map[string]any
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("row %s: %w", lines.Text(), err)
		}
		for field, kind := range rowFields {
			if got, ok := row[field]; !ok || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", kind) {
				return fmt.Errorf("row %s: field %s is %v, want a %T", lines.Text(), field, got, kind)
			}
		}
		matches := true
		for _, w := range wanted {
			field, value, _ := strings.Cut(w, "=")
			matches = matches && fmt.Sprint(row[field]) == value
		}
		if !matches {
			continue
		}
		found++
		p10, median, p90, p99 := row["p10_us"].(float64), row["median_us"].(float64), row["p90_us"].(float64), row["p99_us"].(float64)
		if row["verified"] != true || row["runs"].(float64) < 1 || row["iterations"].(float64) < 3 || !(0 < p10 && p10 <= median && median <= p90 && p90 <= p99) {
			return fmt.Errorf("row %s: want it verified and its quantiles in order", lines.Text())
		}
	}
	if count == "some" && found > 0 || count == strconv.Itoa(found) {
		return nil
	}
	return fmt.Errorf("found %d rows with %q, want %s", found, wanted, count)
}

func TestRowChecker(t *testing.T) {
	const header = `{"header":true,"machine":{"cpu":"x","kernel":"y"},"versions":{"gorun":"1"},"command":"gorun-bench -q"}` + "\n"
	const row = `{"benchmark":"bcast","system":"gorun","np":2,"bytes":8,"type":"byte","memory":"ordinary","median_us":2,"p10_us":1,"p90_us":3,"p99_us":4,"runs":1,"iterations":3,"verified":true}` + "\n"
	for _, c := range []struct {
		name, text, count string
		wanted            []string
		ok                bool
	}{
		{"good", header + row, "1", []string{"system=gorun", "bytes=8"}, true},
		{"some", header + row + row, "some", nil, true},
		{"none with that value", header + row, "1", []string{"np=4"}, false},
		{"too many", header + row + row, "1", nil, false},
		{"no header", row, "0", nil, false},
		{"a field is missing", header + strings.Replace(row, `"type":"byte",`, "", 1), "1", nil, false},
		{"a field of another type", header + strings.Replace(row, `"np":2`, `"np":"2"`, 1), "1", nil, false},
		{"not verified", header + strings.Replace(row, "true", "false", 1), "1", nil, false},
		{"quantiles out of order", header + strings.Replace(row, `"p90_us":3`, `"p90_us":1`, 1), "1", nil, false},
		{"no rows", header, "some", nil, false},
	} {
		if err := checkRows(c.text, c.count, c.wanted); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
