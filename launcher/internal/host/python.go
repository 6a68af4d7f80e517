package host

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pythonHook ends the job when an exception goes uncaught in a rank of mpi4py.
//
//go:embed sitecustomize.py
var pythonHook []byte

// pythonPath leads Python to what it looks for at its start.
const pythonPath = "PYTHONPATH="

// layPython puts the hook where Python finds it, and gives the directory; "" where no rank here can run Python, or
// it could not be put there: then nothing changes for it.
func (s *starter) layPython() string {
	if !s.spec.PythonAbort || s.rankDir == "" || !slices.Contains(s.server.alone, false) {
		return ""
	}
	dir := filepath.Join(s.rankDir, "python")
	file := filepath.Join(dir, "sitecustomize.py")
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		s.left.laid = append(s.left.laid, dir, file)
		err = os.WriteFile(file, pythonHook, 0o644)
	}
	if err != nil {
		s.log("--python-abort: %v", err)
		return ""
	}
	return dir
}

// before adds a directory to where something is looked for, before the user's.
func before(user []string, path, dir string) []string {
	for i, entry := range user {
		if value, ok := strings.CutPrefix(entry, path); ok {
			user = append(user[:i:i], user[i+1:]...)
			if value != "" {
				dir += ":" + value
			}
			break
		}
	}
	return append(user, path+dir)
}

// withoutHook is where Python looks, without the hooks of an outer gorun.
func withoutHook(path string) string {
	dirs := filepath.SplitList(path)
	return strings.Join(slices.DeleteFunc(dirs, func(dir string) bool { return strings.Contains(dir, "/"+directoryPrefix) }), ":")
}
