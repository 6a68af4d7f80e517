package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// FuzzReadPlan reads any plan. Workers in C read the same form.
func FuzzReadPlan(f *testing.F) {
	p := plan{points: []point{{"alltoall", "byte", 8}, {"allreduce", "float64", 1 << 20}}, limit: time.Minute, quota: time.Second, budget: time.Millisecond,
		warmup: -1, memory: ordinary, devices: []string{"soft0"}, separate: true}
	var b bytes.Buffer
	if err := p.write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("limit 1e300\nquota NaN\n"))
	f.Add([]byte("limit -1\npoint 0 a b 9223372036854775807 9223372036854775807 0 0\n"))
	f.Add([]byte("point 1 a b 1 1 1 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := readPlan(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := p.write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := readPlan(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, &b, err)
		}
		if !reflect.DeepEqual(again.points, p.points) || again.memory != p.memory || !reflect.DeepEqual(again.devices, p.devices) || again.separate != p.separate {
			t.Errorf("%q is written as %q", text, &b)
		}
	})
}

// FuzzAnswer takes any output of a job: of workers, libraries and MPIs.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("version 4.2\nchosen 0 direct, as ...\npoint 0 10 20 1.5 2 2.5 3\nwrong 1\npoint 1 1 1 1 1 1 1 0.5 2 33\nend\n"), 3)
	f.Add([]byte("point 0 1 1 NaN 1 1 1\npoint 0 1 1 1e999 1 1 1\npoint 9 1 1 1 1 1 1\n"), 1)
	f.Add([]byte("point 0 0x1p4 1_0 1 1 1 1\npoint  0\npoint 0 1\n"), 1000)
	f.Add(bytes.Repeat([]byte("x"), longestLine+9), 7)
	f.Fuzz(func(t *testing.T, out []byte, cut int) {
		take := func(pieces ...[]byte) (*answer, error) {
			a := &answer{points: 2, samples: map[int]sample{}}
			l := lines{take: a.line}
			for _, p := range pieces {
				if n, err := l.Write(p); n != len(p) || err != nil {
					t.Fatalf("%d of %d bytes, %v", n, len(p), err)
				}
			}
			return a, l.err
		}
		a, err := take(out)
		cut = max(0, min(cut, len(out)))
		b, err2 := take(out[:cut], out[cut:])
		if !reflect.DeepEqual(a.samples, b.samples) || a.ended != b.ended || (err == nil) != (err2 == nil) {
			t.Errorf("cut at %d: %+v and %+v, %v and %v", cut, a.samples, b.samples, err, err2)
		}
		for i, s := range a.samples {
			if i < 0 || i >= a.points {
				t.Errorf("a sample of point %d", i)
			}
			if err == nil && s.count > 0 && s.validate() != nil {
				t.Errorf("point %d: %+v", i, s)
			}
		}
	})
}

// FuzzReadJSON reads any file of results.
func FuzzReadJSON(f *testing.F) {
	overlap := 12.5
	rows := []row{
		{Benchmark: "alltoall", System: gorun, NP: 2, Bytes: 8, Type: "byte", Memory: ordinary, Median: 1, P10: 1, P90: 1, P99: 1, Least: 1, Most: 1, Runs: 3, Verified: true,
			Ratio: 1, RatioLow: 1, RatioHigh: 1, Peer: rivals[0], Overlap: &overlap, Honest: &overlap},
		{Benchmark: "barrier", System: rivals[1], NP: 4, Memory: registered, Failed: "no such program"},
	}
	var b bytes.Buffer
	if err := writeJSON(&b, &header{Header: true, Method: "m", Versions: map[string]string{"go": "1"}}, rows); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"header": true}` + "\n" + `{"benchmark": "alltoall", "median_us": -1}`))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, rows, err := readJSON(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := writeJSON(&b, h, rows); err != nil {
			t.Fatal(err)
		}
		h2, rows2, err := readJSON(bytes.NewReader(b.Bytes()))
		if err != nil || !reflect.DeepEqual(h2.Versions, h.Versions) || !reflect.DeepEqual(rows2, rows) {
			t.Errorf("%q is written as %q: %v", text, &b, err)
		}
		var c bytes.Buffer
		if err := writeCSV(&c, rows); err != nil || strings.Count(c.String(), "\n") < len(rows)+1 {
			t.Errorf("%q: %d lines of CSV of %d rows, %v", text, strings.Count(c.String(), "\n"), len(rows), err)
		}
	})
}
