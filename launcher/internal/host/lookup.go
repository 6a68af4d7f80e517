package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// Exit statuses of programs that cannot be started, as shells use them.
const (
	statusNotFound      = 127
	statusNotExecutable = 126
)

// defaultPath is where programs are looked for without a PATH, as execvp does.
const defaultPath = "/bin:/usr/bin"

// startError is why no rank can be started.
type startError struct {
	status       int
	field, value string
	err          error
}

func (e *startError) Error() string { return fmt.Sprintf("%s %s: %v", e.field, e.value, e.err) }
func (e *startError) Unwrap() error { return e.err }

// programs are the files to execute, by program of the job; "" for those that no
// rank of this host runs.
func (s *starter) programs() ([]string, error) {
	files := make([]string, len(s.spec.Apps))
	for i := range s.spec.Ranks {
		app := s.appOf(i)
		file := &files[s.spec.Ranks[i].App]
		if *file != "" {
			continue
		}
		var err error
		if *file = s.preloaded[s.spec.Ranks[i].App]; *file != "" {
			if err := checkDir(app.Dir); err != nil {
				return nil, err
			}
			continue
		}
		if *file, err = program(app.Argv[0], app.Dir, app.Path, app.Env); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// program finds the file to execute, as execvp would in a rank: with a slash in
// its name from dir, else along path, or if that is empty PATH of env. What is
// not in PATH is taken from dir if it is there, as Open MPI's launcher does.
func program(name, dir, path string, env []string) (string, error) {
	fail := func(status int, format string, args ...any) error {
		return &startError{status, "Argv", name, fmt.Errorf(format, args...)}
	}
	if err := checkDir(dir); err != nil {
		return "", err
	}
	if name == "" {
		return "", fail(statusNotFound, "the program's name is empty")
	}
	if strings.Contains(name, "/") {
		file := name
		if dir != "" && !filepath.IsAbs(name) {
			file = filepath.Join(dir, name)
		}
		err := executable(file)
		switch {
		case err == nil:
			return name, nil // executed from dir
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			return "", fail(statusNotFound, "no such program%s", whyNowhere(file))
		default:
			return "", fail(statusNotExecutable, "not executable: %w", reason(err))
		}
	}
	search := cmp.Or(path, searchPath(env))
	var found error
	for _, d := range filepath.SplitList(search) {
		d = cmp.Or(d, ".") // as POSIX has it
		file := filepath.Join(d, name)
		if !strings.Contains(file, "/") {
			file = "./" + file
		}
		at := file
		if dir != "" && !filepath.IsAbs(file) {
			at = filepath.Join(dir, file)
		}
		switch err := executable(at); {
		case err == nil:
			return file, nil
		case found == nil && errors.Is(err, fs.ErrPermission) && isThere(at):
			found = fmt.Errorf("%s: not executable: %w", file, reason(err))
		}
	}
	if path == "" && executable(filepath.Join(dir, name)) == nil {
		return "./" + name, nil
	}
	if found != nil {
		return "", fail(statusNotExecutable, "%w", found)
	}
	if path != "" {
		return "", fail(statusNotFound, "no such program in %s", path)
	}
	return "", fail(statusNotFound, "no such program in the %s of PATH, nor in %s", directories(search), cmp.Or(dir, "the working directory"))
}

// checkDir looks at a working directory; "" is this process's.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return &startError{1, "Dir", dir, reason(err)}
	}
	if !st.IsDir() {
		return &startError{1, "Dir", dir, errors.New("not a directory")}
	}
	return nil
}

// FindHere is the file of a program on this machine, where it is to be sent to hosts: in its directory, if that is
// here too, else relative to this process's. status is that of a job without it.
func FindHere(app *AppSpec) (file string, status int, err error) {
	for _, dir := range []string{app.Dir, ""} {
		if file, err = program(app.Argv[0], dir, app.Path, app.Env); err == nil {
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			return file, 0, nil
		}
	}
	if start, ok := errors.AsType[*startError](err); ok {
		return "", start.status, start.err
	}
	return "", statusNotFound, err
}

// directories is how many a search path has, in words.
func directories(path string) string {
	n := len(filepath.SplitList(path))
	if n == 1 {
		return "1 directory"
	}
	return fmt.Sprintf("%d directories", n)
}

// whyNowhere is why nothing is found by a relative name, where that is the fault of the
// working directory: it was removed, though the shell stays in it.
func whyNowhere(file string) string {
	if filepath.IsAbs(file) {
		return ""
	}
	if _, err := os.Stat("."); err == nil {
		var st unix.Stat_t
		if unix.Stat(".", &st) != nil || st.Nlink > 0 {
			return ""
		}
	}
	return ": the working directory was removed; change to one that exists, or give -wdir and a full path"
}

// searchPath is where an environment has programs looked for.
func searchPath(env []string) string {
	if search, ok := envvar.Lookup(env, "PATH"); ok {
		return search
	}
	return defaultPath
}

// executable tells whether this process may execute a file.
func executable(file string) error {
	if err := unix.Access(file, unix.X_OK); err != nil {
		return err
	}
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return fmt.Errorf("it is a directory: %w", fs.ErrPermission)
	}
	return nil
}

// isThere tells a file that may not be executed from one in a directory that may not be searched, as are root's in the PATH
// that another user has after su: shells pass over these.
func isThere(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// reason is an error without the path, which the message names already.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// script is what runs a script without a first line that names its interpreter:
// the shell, as with execvp. It is "" for a file that is none.
func script(dir, file string) string {
	if dir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	head, err := head(file)
	if err != nil || len(head) == 0 || bytes.HasPrefix(head, []byte("#!")) {
		return ""
	}
	for _, c := range head {
		if c < ' ' && !(c >= '\t' && c <= '\r') || c == 0x7f {
			return "" // no text
		}
	}
	return "/bin/sh"
}

// interpreter is what the first line of a script names; "" for other files.
func interpreter(dir, file string) string {
	if dir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	head, err := head(file)
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	if err != nil || !ok {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	name, _, _ := strings.Cut(strings.Trim(string(line), " \t"), " ")
	return name
}

// head is the beginning of a file.
func head(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 256)
	n, err := io.ReadFull(f, b)
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = nil
	}
	return b[:n], err
}
