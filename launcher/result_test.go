package launcher

import (
	"syscall"
	"testing"
)

func TestResultOthers(t *testing.T) {
	cause := RankEnd{Rank: 1, Status: 3}
	told := func(rank int) RankEnd {
		return RankEnd{Rank: rank, Status: 143, Signal: syscall.SIGTERM, Told: true}
	}
	killed := RankEnd{Rank: 0, Status: 137, Signal: syscall.SIGKILL, Told: true}
	exited := func(rank, status int) RankEnd { return RankEnd{Rank: rank, Status: status} }
	for _, c := range []struct {
		name  string
		ranks []RankEnd
		want  string
	}{
		{"alone", []RankEnd{cause}, ""},
		{"all were told and did", []RankEnd{told(0), cause, told(2)}, ""},
		{"some had ended well", []RankEnd{exited(0, 0), cause, told(2)}, ""},
		{"one did not listen", []RankEnd{killed, cause, told(2)}, "2 others were told to end, 1 of which had to be killed"},
		{"one failed too", []RankEnd{told(0), cause, exited(2, 1), told(3), told(4)}, "3 others were told to end; rank 2 exited with status 1 by itself"},
		{"one was told, one failed", []RankEnd{told(0), cause, {Rank: 2, Status: 139, Signal: syscall.SIGSEGV}},
			"1 other was told to end; rank 2 was killed by signal 11 (segmentation fault) by itself"},
		{"all failed", []RankEnd{exited(0, 2), cause, exited(2, 2), exited(3, 2), exited(4, 2), exited(5, 2)},
			"rank 0 exited with status 2 by itself; rank 2 exited with status 2 by itself; rank 3 exited with status 2 by itself; so did 2 more"},
		{"of a spawn", []RankEnd{cause, {Group: 2, Rank: 1, Status: 4}}, "rank 1 of spawn 2 exited with status 4 by itself"},
	} {
		r := Result{Cause: &Cause{Rank: 1}, Ranks: c.ranks}
		if got := r.Others(); got != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
	if got := (&Result{Ranks: []RankEnd{exited(0, 0)}}).Others(); got != "" {
		t.Errorf("of a job that ended well: %q", got)
	}
}

func TestCauseNamesTheCoreFile(t *testing.T) {
	c := Cause{Rank: 0, Host: "h", Program: "p", PID: 7, Status: 134, Signal: syscall.SIGABRT, Core: true}
	for file, want := range map[string]string{
		"":             "gorun: rank 0 (host h, p, pid 7): killed by signal 6 (aborted), core dumped",
		"/tmp/core.7":  "gorun: rank 0 (host h, p, pid 7): killed by signal 6 (aborted), core dumped: /tmp/core.7",
		"|/bin/dumper": "gorun: rank 0 (host h, p, pid 7): killed by signal 6 (aborted), core dumped to /bin/dumper",
	} {
		if c.CoreFile = file; c.String() != want {
			t.Errorf("got  %q\nwant %q", c.String(), want)
		}
	}
}
