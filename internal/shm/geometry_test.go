package shm

import (
	"math"
	"os"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
)

func TestLay(t *testing.T) {
	const page = 4096
	cases := []struct {
		name    string
		g       Geometry
		header  uint64
		total   uint64
		wantErr bool
	}{
		{name: "one rank, one page", g: Geometry{Ranks: 1, ArenaSize: page}, header: page, total: 2 * page},
		{name: "10 ranks have room in the first page", g: Geometry{Ranks: 10, ArenaSize: page}, header: page, total: 11 * page},
		{name: "11 ranks need a second", g: Geometry{Ranks: 11, ArenaSize: page}, header: 2 * page, total: 13 * page},
		{name: "300 ranks of 1 GiB", g: Geometry{Ranks: 300, ArenaSize: 1 << 30}, header: 29 * page, total: 300<<30 + 29*page},
		{name: "most ranks", g: Geometry{Ranks: MaxRanks, ArenaSize: page}, header: MaxRanks*entrySize + page, total: MaxRanks*(page+entrySize) + page},
		{name: "marks fill the first page", g: Geometry{Ranks: 10, ArenaSize: page, World: 128 * 8}, header: page, total: 11 * page},
		{name: "one more mark needs a second", g: Geometry{Ranks: 10, ArenaSize: page, World: 128*8 + 1}, header: 2 * page, total: 12 * page},
		{name: "most marks", g: Geometry{Ranks: 1, ArenaSize: page, World: MaxWorld}, header: MaxWorld/8 + page, total: MaxWorld/8 + 2*page},
		{name: "too many marks", g: Geometry{Ranks: 1, ArenaSize: page, World: MaxWorld + 1}, wantErr: true},
		{name: "negative marks", g: Geometry{Ranks: 1, ArenaSize: page, World: -1}, wantErr: true},
		{name: "no rank", g: Geometry{Ranks: 0, ArenaSize: page}, wantErr: true},
		{name: "negative ranks", g: Geometry{Ranks: -1, ArenaSize: page}, wantErr: true},
		{name: "too many ranks", g: Geometry{Ranks: MaxRanks + 1, ArenaSize: page}, wantErr: true},
		{name: "no arena", g: Geometry{Ranks: 1, ArenaSize: 0}, wantErr: true},
		{name: "arena is not pages", g: Geometry{Ranks: 1, ArenaSize: page + 1}, wantErr: true},
		{name: "arena beyond int", g: Geometry{Ranks: 1, ArenaSize: 1 << 63}, wantErr: true},
		{name: "largest arena", g: Geometry{Ranks: 1, ArenaSize: math.MaxUint64 / page * page}, wantErr: true},
		{name: "product beyond uint64", g: Geometry{Ranks: 2, ArenaSize: 1 << 63}, wantErr: true},
		{name: "product wraps to small", g: Geometry{Ranks: 4, ArenaSize: 1 << 62}, wantErr: true},
		{name: "product beyond int64", g: Geometry{Ranks: 2, ArenaSize: 1 << 62}, wantErr: true},
		{name: "sum beyond int64", g: Geometry{Ranks: 1, ArenaSize: math.MaxInt64 / page * page}, wantErr: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.g.lay(page)
			if (err != nil) != c.wantErr {
				t.Fatalf("%+v: got error %v, want one: %v", c.g, err, c.wantErr)
			}
			if got.header != c.header || got.total != c.total {
				t.Errorf("%+v: got header %d total %d, want %d and %d", c.g, got.header, got.total, c.header, c.total)
			}
			if err == nil {
				if end := got.arena(c.g.Ranks-1) + int64(c.g.ArenaSize); end != int64(got.total) {
					t.Errorf("%+v: the last arena ends at %d, want %d", c.g, end, got.total)
				}
			}
		})
	}
}

func TestDefaultGeometry(t *testing.T) {
	full := uint64(arenaDefault)
	if arch.RaceEnabled {
		full = arenaDefaultRace
	}
	cases := []struct {
		name  string
		ranks int
		limit uint64
		want  uint64
	}{
		{"no limit", 4, math.MaxUint64, full},
		{"no limit, 300 ranks", 300, math.MaxUint64, full},
		{"no limit, most ranks", MaxRanks, math.MaxUint64, min(full, 128<<20)},
		{"huge limit", 4, 1 << 50, full},
		{"1.5 GiB, 4 ranks", 4, 1536 << 20, min(full, 18<<20)},
		{"2 GiB, 1 rank", 1, 2 << 30, min(full, 456<<20)},
		{"2 GiB, 4 ranks", 4, 2 << 30, min(full, 114<<20)},
		{"2 GiB, 300 ranks", 300, 2 << 30, (456 << 20) / 300 &^ 4095},
		{"tiny limit", 300, 1 << 20, arenaLeast},
		{"zero limit", 4, 0, arenaLeast},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := DefaultGeometry(c.ranks, c.limit)
			if want := (Geometry{Ranks: c.ranks, ArenaSize: c.want}); got != want && os.Getpagesize() == 4096 {
				t.Errorf("DefaultGeometry(%d, %d): got %+v, want %+v", c.ranks, c.limit, got, want)
			}
			if _, err := got.lay(uint64(os.Getpagesize())); err != nil {
				t.Errorf("DefaultGeometry(%d, %d): %+v does not lay out: %v", c.ranks, c.limit, got, err)
			}
		})
	}
}
