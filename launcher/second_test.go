package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// roleNowhere is an agent that cannot meet the others.
func roleNowhere([]string) int {
	listen := func(agent.Place) (agent.Member, error) {
		return nil, errors.New("nowhere to listen")
	}
	if err := agent.Main(context.Background(), os.Stdin, os.Stdout, agent.Process{Listen: listen}); err != nil {
		return 1
	}
	return 0
}

// A host whose login hangs is logged in to once more; the agent that answers first is its, and nothing is left of the other.
func TestALoginThatHangsIsMadeOnceMore(t *testing.T) {
	const first = `if [ $1 = far1 ] && mkdir $DIR/first 2>/dev/null; then `
	for _, c := range []struct {
		name, script string
		want         string // of the job's cause; "": it ends well
	}{
		{"the second comes", first + `exec sleep 1000; fi; `, ""},
		{"the first comes then", first + `while [ ! -e $DIR/second ]; do ls / >/dev/null; done; else [ $1 != far1 ] || { : >$DIR/second; exec sleep 1000; }; fi; `, ""},
		{"the first ends then", first + `while [ ! -e $DIR/second ]; do ls / >/dev/null; done; echo no way >&2; exit 255; fi
			[ $1 != far1 ] || { : >$DIR/second; exec sleep 1000; }; `, "exited with status 255: no way; try "},
		{"the second ends, then the first", first + `while [ ! -e $DIR/second ]; do ls / >/dev/null; done; echo no way >&2; exit 255; fi
			[ $1 != far1 ] || { : >$DIR/second; echo no way either >&2; exit 255; }; `, "host far1: " + noAgent},
		{"the agent of the second fails", first + `exec sleep 1000; fi; [ $1 != far1 ] || set -- far1 "$(echo "$2" | sed "s/\\(.*\\)agent/\\1nowhere/")"; `, "host far1: nowhere to listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			dir := t.TempDir()
			job := Job{NP: 3, Argv: sh("echo on $GORUN_HOST"), run: jobRun{secondAfter: 20 * time.Millisecond, secondReady: func() bool {
				_, err := os.Stat(filepath.Join(dir, "first")) // else the second might be the one to make it
				return err == nil
			}}}
			overShells(t, &job, 3, strings.ReplaceAll(c.script, "$DIR", dir)+play)
			r, stdout, stderr, err := runJob(t, job)
			if c.want != "" {
				if err != nil || r.Cause == nil || !strings.Contains(r.Cause.String(), c.want) {
					t.Errorf("%+v, %v, want %q", r.Cause, err, c.want)
				}
			} else if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "on far1\n") != 1 || strings.Count(stdout, "\n") != 3 {
				t.Errorf("%+v, %v, cause %v\n%s%s", r.ExitStatus, err, r.Cause, stdout, stderr)
			}
			if _, err := os.Stat(filepath.Join(dir, "first")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A job that is told to end while both logins hang ends both.
func TestBothLoginsEndWithTheJob(t *testing.T) {
	testenv.NoLeaks(t)
	both := filepath.Join(t.TempDir(), "both")
	// The rank of the first host fails when the second login is there.
	job := Job{NP: 2, Argv: sh("while [ ! -e " + both + " ]; do ls / >/dev/null; done; exit 3"), run: jobRun{secondAfter: 20 * time.Millisecond}}
	overShells(t, &job, 2, `if [ $1 = far1 ]; then mkdir `+both+`.first 2>/dev/null || : >`+both+`; exec sleep 1000; fi; `+play)
	if r, _, _, err := runJob(t, job); err != nil || r.ExitStatus != 3 || r.Cause == nil || r.Cause.Rank != 0 {
		t.Errorf("%+v, %v, want rank 0's status 3", r, err)
	}
}
