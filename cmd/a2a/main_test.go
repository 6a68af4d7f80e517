package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The whole command, as a world of one.
func TestRun(t *testing.T) {
	testenv.NoLeaks(t)
	dir := t.TempDir()
	for _, c := range []struct {
		name        string
		args        []string
		environ     []string
		status      int
		out, errOut []string // in it; nil: empty
	}{
		{"good", []string{"-m", "8", "-i", "3"}, nil, 0,
			[]string{"-----send buffs-----\nRank 0 | ", "-----recv buffs-----\nRank 0 | ", "(3 calls on 1 rank)\n", "device        soft0 (soft), in one call by engine inline: 0 writes of 0 bytes in all, 1 copy (own blocks), 0 signals\n"}, nil},
		{"device threads", []string{"-m", "8", "-i", "3", "--engine", "dpa"}, nil, 0,
			[]string{"(3 calls on 1 rank)\n", "in one call by engine dpa (1 device thread a rank, ", "): 1 write of 8 bytes in all, 0 copies (own blocks), 1 signal\n"}, nil},
		{"results on standard output", []string{"--output-json", "-", "--print", "none"}, nil, 0, []string{`"ranks": 1,`}, nil},
		{"emulated device", []string{"-d", "mlx5_0"}, []string{"GORUN_EMULATE=mlx5_0"}, 0, []string{"device        mlx5_0 (soft)"}, nil},
		{"help", []string{"-h"}, nil, 0, []string{"Usage: a2a "}, nil},
		{"version", []string{"-v"}, nil, 0, []string{"a2a of gorun "}, nil},
		{"bad size", []string{"-m", "7"}, nil, 1, nil, []string{"[main.go:", "-m: found 7, expected a multiple of 4", "Usage: a2a "}},
		{"no such device", []string{"-d", "nosuch"}, nil, 1, nil, []string{"-d: ", "nosuch", "soft0", "--emulate", "Usage: a2a "}},
		{"results cannot be written", []string{"--output-json", filepath.Join(dir, "no", "such")}, nil, 1, nil, []string{"--output-json: cannot write the results", "Usage: a2a "}},
		{"senseless environment", nil, []string{"PMI_RANK=x", "PMI_SIZE=4", "PMI_FD=3"}, 1, nil, []string{"[ERR]", "PMI_RANK"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errOut strings.Builder
			status := run(context.Background(), time.Now(), c.args, c.environ, doca.Stdio{Out: &out, Err: &errOut})
			if status != c.status {
				t.Errorf("%q: status %d, want %d\nstderr: %s", c.args, status, c.status, errOut.String())
			}
			for _, s := range []struct {
				name, got string
				want      []string
			}{{"stdout", out.String(), c.out}, {"stderr", errOut.String(), c.errOut}} {
				if s.want == nil && s.got != "" {
					t.Errorf("%q: %s is %q, want nothing", c.args, s.name, s.got)
				}
				for _, w := range s.want {
					if !strings.Contains(s.got, w) {
						t.Errorf("%q: %s is %q, want %q in it", c.args, s.name, s.got, w)
					}
				}
			}
		})
	}
}
