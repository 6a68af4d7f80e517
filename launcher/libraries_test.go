package launcher

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// mapFile maps a file as the loader does a library, and makes it if there is none.
func mapFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE)
	return err
}

// Ranks of one world that load different versions of MPI are told of once, and are a strict job's failure.
func TestRanksWithDifferentLibraries(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   string // in the warning; "": none
	}{
		"versions":       {`P map=libmpich.so.12.$((PMI_RANK/2)).5 init barrier finalize`, "libmpich.so.12."},
		"MPIs":           {`P @0 map=libmpi.so.12.0.0 @1 map=libmpich.so.12.0.0 init barrier finalize`, "ranks of one job need one version of one MPI"},
		"a patch":        {`P map=libmpich.so.12.1.$PMI_RANK init barrier finalize`, ""},
		"one":            {`P map=libmpich.so.12.1.0 init barrier finalize`, ""},
		"the ABI's too":  {`P @0 map=libmpi_abi_mpich.so.1.0.0 @1 map=libmpich.so.12.1.0 init barrier finalize`, ""},
		"both in each":   {`P map=libmpi.so.40.$PMI_RANK.0 map=libmpich.so.12.1.0 init barrier finalize`, ""},
		"one by one":     {`P map=libmpich.so.12.1.0 init barrier finalize && P map=libmpich.so.12.2.0 init barrier finalize`, ""},
		"none":           {`P init barrier finalize`, ""},
		"below a script": {`sh -c '"$0" --role pmi map=libmpich.so.12.$PMI_RANK.0 init barrier finalize; true' "$0"`, "libmpich.so.12."},
	} {
		for _, way := range waysOf(name) {
			t.Run(name+" "+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				for _, strict := range []bool{false, true} {
					var warned []string
					job := Job{Argv: inARow(t, c.script), NP: 4, StrictPMI: strict, Warn: func(text string) { warned = append(warned, text) }}
					overAgents(t, &job, way.hosts)
					r, stdout, stderr, err := runJob(t, job)
					text := strings.Join(warned, " ")
					if strict && c.want != "" {
						if text = ""; r.Cause != nil {
							text = r.Cause.String()
						}
					} else if r.ExitStatus != 0 || (c.want != "") != (len(warned) == 1) {
						t.Errorf("strict %v: got %+v, cause %v, warnings %q", strict, r, r.Cause, warned)
					}
					if err != nil || !strings.Contains(text, c.want) {
						t.Errorf("strict %v: got %+v, cause %v, %v, %q, %q, warnings %q, want %q", strict, r, r.Cause, err, stdout, stderr, warned, c.want)
					}
				}
			})
		}
	}
}

// A rank that is a world of its own while another waits for it ends the job, strict or not.
func TestRankAloneEndsTheJob(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: inARow(t, "echo; P @0 map=libuct_mm.so @0 await=never map=libmpich.so.12.1.0 init barrier finalize"), NP: 2, Warn: func(string) {}}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			const want = "is a world of its own, while other ranks have met it and wait for this one"
			if err != nil || r.ExitStatus != statusFailed || r.Cause == nil || r.Cause.Rank != 0 || !strings.Contains(r.Cause.String(), want) {
				t.Errorf("got %+v, cause %v, %v, %q, %q, want %s", r, r.Cause, err, stdout, stderr, want)
			}
		})
	}
}
