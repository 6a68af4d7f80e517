package launcher

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestAllocationEnd(t *testing.T) {
	for _, c := range []struct {
		text string
		err  error
		want string // "" for an allocation that goes on, or of which Slurm says nothing
	}{
		{"RUNNING None\n", nil, ""},
		{"SUSPENDED None\n", nil, ""},
		{"COMPLETING None\n", nil, "the allocation was cancelled (Slurm's job 5)"},
		{"CANCELLED None\n", nil, "the allocation was cancelled (Slurm's job 5)"},
		{"COMPLETING TimeLimit\n", nil, "the allocation was cancelled (Slurm's job 5: TimeLimit)"},
		{"", nil, ""},
		{"", errors.New("slurm_load_jobs error: Invalid job id specified"), ""},
	} {
		if got, is := allocationEnd("5", c.text, c.err); got != c.want || is != (c.want != "") {
			t.Errorf("%q, %v: got %q, %v, want %q", c.text, c.err, got, is, c.want)
		}
	}
}

// Of gridengine's jobs those are cancelled that are listed with a d in their state.
func TestGridEnd(t *testing.T) {
	const head = "job-ID  prior   name       user         state submit/start at     queue\n-----\n"
	for _, c := range []struct {
		text string
		err  error
		want bool
	}{
		{head + "      5 0.55500 job.sh     root         r     11/25/2026 20:44:00 all.q@h1    4\n", nil, false},
		{head + "      5 0.55500 job.sh     root         dr    11/25/2026 20:44:00 all.q@h1    4\n", nil, true},
		{head + "     55 0.55500 job.sh     root         dr    11/25/2026 20:44:00 all.q@h1    4\n", nil, false},
		{head + "      5 0.55500 job.sh     root         dr    11/25/2026 20:44:00 all.q@h1    4\n", errors.New("exit status 1"), false},
		{"5 dr\n", nil, false},
		{"", nil, false},
	} {
		want := "the allocation was cancelled (gridengine's job 5)"
		if got, is := gridEnd("5", c.text, c.err); is != c.want || is && got != want {
			t.Errorf("%q, %v: got %q, %v, want %v", c.text, c.err, got, is, c.want)
		}
	}
}

// Slurm is not asked about causes that do not come of it, nor outside of its allocations.
func TestRevokedAsksOnlyWhereItMayBe(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	script := "#!/bin/sh\n: > " + asked + "\necho CANCELLED None\n"
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	inside := []string{"SLURM_JOB_ID=5"}
	for _, c := range []struct {
		cause   Cause
		environ []string
		want    bool
	}{
		{Cause{Status: 3}, inside, false},
		{Cause{Signal: syscall.SIGSEGV, Status: 139}, inside, false},
		{Cause{Signal: syscall.SIGTERM, Status: 143}, inside, true},
		{Cause{Status: 137}, inside, true},
		{Cause{Status: statusFailed, lost: true}, inside, true},
		{Cause{Signal: syscall.SIGTERM, Status: 143}, nil, false},
	} {
		message, is := (&Job{run: jobRun{environ: c.environ}}).revoked(t.Context(), &c.cause)
		if is != c.want || is && !strings.Contains(message, "Slurm's job 5") {
			t.Errorf("%+v, %q: got %q, %v, want %v", c.cause, c.environ, message, is, c.want)
		}
		if err := os.Remove(asked); (err == nil) != c.want {
			t.Errorf("%+v, %q: squeue was called: %v, want %v", c.cause, c.environ, err == nil, c.want)
		}
	}
}

// gridengine tells of the end of a job by other signals, too.
func TestGridengineIsAsked(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qstat"), []byte("#!/bin/sh\necho 5 0.5 job.sh root dr 11/25/2026\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	job := &Job{run: jobRun{environ: []string{"JOB_ID=5", "PE_HOSTFILE=/x"}}}
	if message, is := job.revoked(t.Context(), &Cause{Signal: syscall.SIGUSR2, Status: 140}); !is || !strings.Contains(message, "gridengine's job 5") {
		t.Errorf("got %q, %v", message, is)
	}
	for _, job := range []*Job{{run: jobRun{environ: []string{"JOB_ID=5"}}}, {run: jobRun{environ: []string{"PE_HOSTFILE=/x"}}}} {
		if message, is := job.revoked(t.Context(), &Cause{Signal: syscall.SIGKILL, Status: 137}); is {
			t.Errorf("%q: got %q outside of a job of gridengine", job.run.environ, message)
		}
	}
}

func TestQrshStartsTheAgent(t *testing.T) {
	job := Job{Agents: Agents{Launcher: gridengine.Launcher, Command: []string{"/opt/the agent"}, ShellArgs: []string{"-now", "n"}}, run: jobRun{environ: []string{"JOB_ID=5", "PE_HOSTFILE=/x"}}, Hosts: []Host{{Name: "n2"}, {Name: "localhost"}}}
	if err := job.findLauncher(); err != nil || job.Agents.Launcher != gridengine.Launcher {
		t.Fatalf("launcher %q, %v", job.Agents.Launcher, err)
	}
	if got, want := job.agentOf("n2"), []string{"qrsh", "-inherit", "-now", "n", "n2", "exec '/opt/the agent'"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSrunStartsTheAgent(t *testing.T) {
	job := Job{Agents: Agents{Launcher: slurm.Launcher, Command: []string{"/opt/gorun-agent"}, ShellArgs: []string{"--gpus=1"}}, run: jobRun{environ: []string{"SLURM_JOB_ID=5"}}, Hosts: []Host{{Name: "n2"}, {Name: "localhost"}}}
	if err := job.findLauncher(); err != nil || job.Agents.Launcher != slurm.Launcher {
		t.Fatalf("launcher %q, %v", job.Agents.Launcher, err)
	}
	got := job.agentOf("n2")
	if !slices.Equal(got[len(got)-3:], []string{"--gpus=1", "--nodelist=n2", "/opt/gorun-agent"}) || got[0] != "srun" || !slices.Contains(got, "--overlap") {
		t.Errorf("got %q", got)
	}
	if got := job.agentOf("localhost"); !slices.Equal(got, job.Agents.Command) {
		t.Errorf("this host's agent: got %q, want %q", got, job.Agents.Command)
	}
}

// srun knows the nodes of an allocation by Slurm's names alone.
func TestSrunIsToldTheNodesName(t *testing.T) {
	for _, c := range []struct{ nodes, host, want string }{
		{"n[1-2]", "n2.cluster", "n2"},
		{"n1.cluster,n2.cluster", "n2", "n2.cluster"},
		{"n[1-2]", "n2", "n2"},
		{"n[1-2]", "n3", "n3"},
		{"", "n2.cluster", "n2.cluster"},
		{"n[1-", "n2.cluster", "n2.cluster"},
	} {
		job := Job{run: jobRun{environ: []string{"SLURM_JOB_NODELIST=" + c.nodes}}}
		if got := job.srun(c.host); got[len(got)-1] != "--nodelist="+c.want {
			t.Errorf("%s of %q: got %q, want %s", c.host, c.nodes, got[len(got)-1], c.want)
		}
	}
}

func TestLauncherSlurmNeeds(t *testing.T) {
	for _, c := range []struct {
		job  Job
		want string // the launcher, or a part of the error
	}{
		{Job{Hosts: []Host{{Name: "n2"}}}, "salloc"},
		{Job{Hosts: []Host{{Name: "n2"}}, run: jobRun{environ: []string{"SLURM_JOB_ID=5"}}, Agents: Agents{Shell: []string{"rsh"}}}, "want one of both"},
		{Job{Hosts: []Host{{Name: "localhost"}}, run: jobRun{environ: []string{"SLURM_JOB_ID=5"}}}, ""},
		{Job{Agents: Agents{Launcher: gridengine.Launcher}, Hosts: []Host{{Name: "n2"}}, run: jobRun{environ: []string{"SLURM_JOB_ID=5"}}}, "PE_HOSTFILE"},
		{Job{Agents: Agents{Launcher: gridengine.Launcher, Shell: []string{"rsh"}}, Hosts: []Host{{Name: "n2"}}, run: jobRun{environ: []string{"JOB_ID=5", "PE_HOSTFILE=/x"}}}, "qrsh -inherit starts the agents"},
	} {
		c.job.Agents.Launcher, c.job.Agents.Command = cmp.Or(c.job.Agents.Launcher, slurm.Launcher), []string{"agent"}
		err := c.job.findLauncher()
		if err == nil && c.job.Agents.Launcher != c.want || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: launcher %q, %v, want %q", c.job.Hosts, c.job.Agents.Launcher, err, c.want)
		}
	}
}

// Slurm ends an allocation by a signal to all processes, gorun's question among them.
func TestRevokedAsksAgainWhenTheQuestionIsKilled(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ -e " + dir + "/once ] && echo CANCELLED None && exit\n: > " + dir + "/once\nkill -TERM $$\n"
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	job := &Job{run: jobRun{environ: []string{"SLURM_JOB_ID=5"}}}
	if message, is := job.revoked(t.Context(), &Cause{Signal: syscall.SIGTERM, Status: 143}); !is || !strings.Contains(message, "Slurm's job 5") {
		t.Errorf("got %q, %v", message, is)
	}
}
