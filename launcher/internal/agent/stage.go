package agent

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// A Stage is the program of the agent, for hosts that have none. The remote shell there runs a script,
// which looks for the program by its hash: in a cache of the user's, then at the path that it has here, from which
// it is copied: who can write there could change a file after the look. Where it is in neither, the stream begins so:
//
//	controller                         script
//	                          <-------  NUL gorun-stage REASON
//	program                   ------->  checks the hash, renames it into the cache
//	                          <-------  greeting of the agent, which has taken the script's place
//	frames                    ------->
//
// Frames wait for the greeting, so the script may read ahead. The cache is $XDG_CACHE_HOME/gorun, else
// ~/.cache/gorun, else /tmp/gorun-UID: a directory of the user's own with mode 0700, or the script ends with
// a complaint, for whoever can write there has the user's processes. The script goes into it before it looks, so
// that nothing is swapped in between, and replaces no program that is right, for hosts may share the directory and one may
// be running it. It keeps the four programs used last, and those of a day.
type Stage struct {
	path    string
	program []byte
	hash    string
}

// ReadStage reads the program.
func ReadStage(path string) (*Stage, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(program)
	return &Stage{path, program, hex.EncodeToString(hash[:])}, nil
}

//go:embed stage.sh
var stageScript string

// machines are names of processors as uname has them.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// Command starts the agent on a host. Its words survive a login shell that is no POSIX shell, between single
// quotes: csh takes no line ends and no exclamation marks there, and fish takes two backslashes for one.
func (s *Stage) Command() []string {
	script := strings.ReplaceAll(strings.TrimSpace(stageScript), "\n", " ")
	return []string{"/bin/sh", "-c", script, "gorun-stage", s.hash, strconv.Itoa(len(s.program)), machines[runtime.GOARCH], s.path}
}

// stageMark begins the line by which a script asks for the program.
const stageMark = "\x00gorun-stage "
