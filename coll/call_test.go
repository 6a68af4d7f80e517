package coll

import "testing"

func TestSummaryTellsElements(t *testing.T) {
	for want, s := range map[string]summary{
		"allreduce of 800 bytes (100 elements of 8) (direct)": {kind: AllReduce, algorithm: Direct, bytes: 800, elem: 8},
		"allreduce of 801 bytes (direct)":                     {kind: AllReduce, algorithm: Direct, bytes: 801, elem: 8},
		"alltoall of 800 bytes (direct)":                      {kind: AllToAll, algorithm: Direct, bytes: 800, elem: 1},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
