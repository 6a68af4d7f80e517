package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/visit"
)

// Those for whom others may wait come first; rates are of the time between two looks.
func TestTopTable(t *testing.T) {
	before := &visit.Report{Ranks: []visit.Rank{{Rank: 0, CPU: time.Second, Calls: 100}, {Rank: 1, CPU: time.Second, Calls: 400}}}
	r := &visit.Report{PID: 7, Program: "gorun -np 3 ./p\x1b[2J", Begun: time.Now().Add(-12 * time.Second), Ranks: []visit.Rank{
		{Rank: 0, Host: "a", CPU: time.Second, RSS: 3 << 20, Calls: 100, Lines: []string{"p (pid 8): sleeping in futex_do_wait, 7 threads, 1.00 s of CPU time", "MPI: after MPI_Init, before the end of MPI_Finalize", "MPI: it waits in barrier on World (call 1 of the communicator), for rank 1, since 10:00:00.000 (2.1s)"}},
		{Rank: 1, Host: "b", CPU: 2 * time.Second, RSS: 5 << 19, Calls: 900, Lines: []string{"sh (pid 9): sleeping in do_wait, 1 thread, 0.00 s of CPU time", "p (pid 10): running, 7 threads, 2.00 s of CPU time"}},
		{Rank: 2, Host: "b", Lines: []string{"has ended"}},
		{Group: 1, Rank: 0, Host: "host-of-a-long-name", Lines: []string{"p (pid 11): sleeping, 1 thread, 0.00 s of CPU time", "MPI: waiting for the other ranks at its launcher's barrier, as in MPI_Init and MPI_Finalize"}},
	}}
	want := `gorun (pid 7), 4 ranks on 3 hosts, 12 s: gorun -np 3 ./p?[2J
  rank  host            CPU     memory   calls/s  doing
     1  b               50%    2.5 MiB       250  p (pid 10): running, 7 threads, 2.00 s of CPU time
     0  a                0%    3.0 MiB         0  waits in barrier on World (call 1 of the communicator), for rank 1, since 10:00:00.000 (2.1s)
   1.0  host-of-a-lo      -    0.0 MiB         -  waiting for the other ranks at its launcher's barrier, as in MPI_Init and MPI_Finalize
   ...  and 1 more`
	if got := strings.Join(table(r, before, 2*time.Second, 3), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := table(&visit.Report{PID: 7, Begun: time.Now()}, nil, 0, 3); len(got) != 2 || !strings.Contains(got[1], "no rank runs") {
		t.Errorf("without ranks: %q", got)
	}
}

func TestChooseJob(t *testing.T) {
	two := []visit.Job{{PID: 3, Program: "gorun ./a"}, {PID: 4, Program: "gorun ./b"}}
	for _, c := range []struct {
		asked int
		jobs  []visit.Job
		pid   int
		err   string
	}{
		{9, two, 9, ""},
		{0, two[:1], 3, ""},
		{0, two, 0, "2 jobs run here, say which one: gorun-info top PID\n       3  gorun ./a\n       4  gorun ./b"},
		{0, nil, 0, "no job of yours runs on this machine; top looks where gorun itself runs"},
	} {
		pid, err := chooseJob(c.asked, c.jobs)
		if pid != c.pid || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%d of %v: %d, %v", c.asked, c.jobs, pid, err)
		}
	}
}
