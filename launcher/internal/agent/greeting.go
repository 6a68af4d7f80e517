package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/version"
)

// An agent's stream begins with its greeting, a line that no program writes by chance:
//
//	NUL gorun-agent VERSION STREAM PID
//
// STREAM says what follows: the version of the frames, or that of a relay's.
// What comes before it is of the login scripts of the host's user.

// streamVersion is that of the frames, relayVersion that of what a relay speaks.
const (
	streamVersion = "7"
	relayVersion  = "relay1"
)

const greetingMark = "\x00gorun-agent "

// greetingMost bounds a greeting.
const greetingMost = 256

// strayMost bounds what login scripts write.
const strayMost = 64 << 10

func greeting(stream string) []byte {
	return fmt.Appendf(nil, "%s%s %s %d\n", greetingMark, version.Number, stream, os.Getpid())
}

// readGreeting reads up to the end of the greeting before a stream. said is told all that came before it, as it
// grows; wanted, once, why the script of a Stage wants the program. At a stream's end without any byte the error is io.EOF.
func readGreeting(r *bufio.Reader, stream string, said, wanted func(text string)) (pid int, err error) {
	var all []byte
	asked := false
	for {
		if _, err := r.Peek(1); err != nil {
			if err == io.EOF && len(all) > 0 {
				err = fmt.Errorf("found %q, expected the greeting of an agent", lastLine(string(all)))
			}
			return 0, err
		}
		chunk, _ := r.Peek(r.Buffered())
		before := len(all)
		all = append(all, chunk...)
		if from := bytes.Index(all, []byte(stageMark)); from >= 0 && !asked {
			if n := bytes.IndexByte(all[from:], '\n'); n >= 0 {
				asked = true
				said(string(all[:from]))
				_, _ = r.Discard(from + n + 1 - before)
				wanted(string(all[from+len(stageMark) : from+n]))
				all = all[:from]
				continue
			}
		}
		at := bytes.Index(all, []byte(greetingMark))
		if at < 0 {
			said(string(all))
			if len(all) > strayMost {
				return 0, fmt.Errorf("found %q and no greeting of an agent within %d bytes; do login scripts there write to standard output?", lastLine(string(all)), strayMost)
			}
		} else if n := bytes.IndexByte(all[at:], '\n'); n >= 0 {
			said(string(all[:at]))
			_, _ = r.Discard(at + n + 1 - before)
			return parseGreeting(string(all[at+len(greetingMark):at+n]), stream)
		} else if len(all)-at > greetingMost {
			return 0, fmt.Errorf("found %q, expected the line of an agent's greeting within %d bytes", lastLine(string(all[at+1:])), greetingMost)
		}
		_, _ = r.Discard(len(chunk))
	}
}

func parseGreeting(text, stream string) (pid int, err error) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return 0, fmt.Errorf("found greeting %q of an agent, expected VERSION STREAM PID", text)
	}
	if f[0] != version.Number || f[1] != stream {
		return 0, fmt.Errorf("found an agent of gorun %s (stream %s), expected %s (stream %s): install the same gorun there, or name its agent with --launch-agent", f[0], f[1], version.Number, stream)
	}
	if pid, err = strconv.Atoi(f[2]); err != nil || pid < 1 {
		return 0, errors.New("found greeting of an agent with pid " + strconv.Quote(f[2]) + ", expected a number")
	}
	return pid, nil
}

// lastLine is the last line of a text that is not blank, short enough for a message.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	last := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	return last[:min(len(last), 200)]
}
