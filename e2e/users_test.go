package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// nobody is a user who has nothing to do with this test's.
const nobody = 65534

// TestOtherUsersAreRefused has another user's processes come to the daemon and to the channel of this
// one, which serve their own client afterwards.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Unsupported(t, "only root can start processes of another user")
	}
	dir, err := os.MkdirTemp("", "gorun-users-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	channel := fmt.Sprintf(" -p soft0 -s 1 -n 1 --name users%d", os.Getpid())
	for _, c := range []struct {
		name            string
		server, client  []string
		ready           string // what the server says before a client may come
		refusal, notice string // what the other user's client says, and the server
	}{
		{
			"allreduce", strings.Fields("-r daemon -c 1 -t 21301 -b 1 -i 1 -s 10"), strings.Fields("-r client -m offloaded -a localhost:21301 -b 1 -i 1 -s 10"), "listening on port 21301",
			`localhost:21301: refused( by daemon [^ ]*:21301)?: the process at 127.0.0.1:[0-9]+ belongs to user [0-9]+, and this one to [0-9]+: give both the same --key FILE`,
			`a connection from 127.0.0.1:[0-9]+ was not let in: refused: the process at 127.0.0.1:[0-9]+ belongs to user 65534, and this one to 0: give both the same --key FILE`,
		},
		{
			"secure-channel", strings.Fields("--role dpu" + channel), strings.Fields("--role host --connect-timeout 1" + channel), "Started Listening",
			`none has come on soft0 within 1s \(--connect-timeout\): start it, as user 65534, with secure-channel --role dpu`, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(dir, c.name)
			original, err := exec.LookPath(c.name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(original)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(program, text, 0o755); err != nil {
				t.Fatal(err)
			}
			ctx := testenv.Deadline(t, time.Minute)
			server := exec.CommandContext(ctx, program, c.server...)
			file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			server.Stderr = file
			said := func() string { text, _ := os.ReadFile(file.Name()); return string(text) }
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, awaitLimit, c.ready, func() bool { return strings.Contains(said(), c.ready) })
			stranger := exec.CommandContext(ctx, program, c.client...)
			stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			var log bytes.Buffer
			stranger.Stderr = &log
			if err := stranger.Run(); stranger.ProcessState.ExitCode() != 1 || !regexp.MustCompile(c.refusal).Match(log.Bytes()) {
				t.Errorf("the other user's client: %v, want status 1 and %q\n%s", err, c.refusal, &log)
			}
			if out, err := exec.CommandContext(ctx, program, c.client...).CombinedOutput(); err != nil {
				t.Errorf("this user's client: %v\n%s", err, out)
			}
			if err := server.Wait(); err != nil {
				t.Errorf("the server: %v", err)
			}
			if !regexp.MustCompile(c.notice).MatchString(said()) {
				t.Errorf("the server does not say %q\n%s", c.notice, said())
			}
		})
	}
}
