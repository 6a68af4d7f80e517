package main

import "testing"

func TestAims(t *testing.T) {
	for _, c := range []struct {
		row    row
		aim    string
		missed bool
	}{
		{row{Benchmark: "latency", NP: 2, Bytes: 64 << 10, Memory: registered, Ratio: 0.604}, "0.60", false},
		{row{Benchmark: "latency", NP: 2, Bytes: 64 << 10, Memory: registered, Ratio: 0.606}, "0.60", true},
		{row{Benchmark: "latency", NP: 2, Bytes: 64 << 10, Memory: ordinary, Ratio: 0.7}, "0.90", false},
		{row{Benchmark: "latency", NP: 2, Bytes: 1 << 20, Memory: ordinary, Ratio: 7}, "", false},
		{row{Benchmark: "bw", NP: 2, Bytes: 1 << 20, Memory: ordinary, Ratio: 0.92}, "0.91", true},
		{row{Benchmark: "mr", NP: 2, Bytes: 8, Memory: ordinary, Ratio: 0.9, Rate: 11e6}, "1.00", true},
		{row{Benchmark: "mr", NP: 2, Bytes: 8, Memory: ordinary, Ratio: 0.9, Rate: 13e6}, "1.00", false},
		{row{Benchmark: "mr", NP: 4, Bytes: 8, Memory: ordinary, Ratio: 9}, "", false},
		{row{Benchmark: "barrier", NP: 8, Memory: registered, Ratio: 0.8}, "0.70", true},
		{row{Benchmark: "barrier", NP: 16, Memory: registered, Ratio: 0.8}, "1.00", false},
		{row{Benchmark: "allreduce", NP: 4, Bytes: 8, Type: "float", Memory: ordinary, Ratio: 0.8}, "0.80", false},
		{row{Benchmark: "allreduce", NP: 4, Bytes: 8, Type: "double", Memory: ordinary, Ratio: 3}, "", false},
		{row{Benchmark: "allreduce", NP: 16, Bytes: 24, Type: "float", Memory: ordinary, Ratio: 3}, "1.00", true},
		{row{Benchmark: "gather", NP: 3, Bytes: 1 << 10, Memory: ordinary, Ratio: 1.01}, "1.00", true},
		{row{Benchmark: "put", NP: 2, Bytes: 8, Memory: ordinary, Ratio: 3}, "", false},
	} {
		r := c.row
		if r.System, r.Peer = gorun, mpich; r.Type == "" {
			r.Type = "byte"
		}
		if got := r.aimText(); got != c.aim || r.missed() != c.missed {
			t.Errorf("%+v: aim %q, missed %t; want %q, %t", c.row, got, r.missed(), c.aim, c.missed)
		}
		r.Peer = "" // nothing to be held to
		if r.missed() {
			t.Errorf("%+v: missed without a ratio", c.row)
		}
	}
	for i := range aims {
		for _, name := range aims[i].benchmarks {
			if find(name) == nil {
				t.Errorf("no benchmark is called %q", name)
			}
		}
	}
}
