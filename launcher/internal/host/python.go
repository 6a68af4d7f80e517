package host

import (
	"bytes"
	_ "embed"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// pythonHook ends the job when an exception goes uncaught in a rank of mpi4py.
//
//go:embed sitecustomize.py
var pythonHook []byte

// pythonPath leads Python to what it looks for at its start.
const pythonPath = "PYTHONPATH="

// layPython puts the hook where Python finds it, and gives the directory; "" where no rank
// here runs Python, or it could not be put there: then nothing changes for it.
func (h *Host) layPython(files []string) string {
	if !h.spec.PythonAbort || h.rankDir == "" {
		return ""
	}
	for i, file := range files {
		if file == "" || !isPython(&h.spec.Apps[i], file) {
			continue
		}
		dir := filepath.Join(h.rankDir, "python")
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "sitecustomize.py"), pythonHook, 0o600)
		}
		if err != nil {
			h.log("--python-abort: %v", err)
			return ""
		}
		return dir
	}
	return ""
}

// isPython tells whether a program is Python, a script of it, or runs it by name, as env,
// numactl and profilers do. Of a shell's script it cannot be known, and the shell may look at
// PYTHONPATH itself.
func isPython(app *AppSpec, file string) bool {
	for _, word := range app.Argv {
		if pythonName(filepath.Base(word)) {
			return true
		}
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(app.Dir, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	line := make([]byte, 256)
	n, err := io.ReadFull(f, line)
	if line = line[:n]; err != nil && err != io.ErrUnexpectedEOF || !bytes.HasPrefix(line, []byte("#!")) {
		return false
	}
	first, _, _ := strings.Cut(string(line[2:]), "\n")
	for word := range strings.FieldsSeq(first) {
		if pythonName(filepath.Base(word)) {
			return true
		}
	}
	return false
}

// pythonName knows an interpreter by its file's name: python, python3.11, pypy3.
func pythonName(name string) bool {
	rest, ok := strings.CutPrefix(name, "python")
	if !ok {
		rest, ok = strings.CutPrefix(name, "pypy")
	}
	return ok && strings.Trim(rest, "0123456789.") == ""
}

// withPython adds a directory to where Python looks, before the user's.
func withPython(user []string, dir string) []string {
	for i, entry := range user {
		if value, ok := strings.CutPrefix(entry, pythonPath); ok {
			user = append(user[:i:i], user[i+1:]...)
			if value != "" {
				dir += ":" + value
			}
			break
		}
	}
	return append(user, pythonPath+dir)
}
