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
func (h *Host) layPython() string {
	if !h.spec.PythonAbort || h.rankDir == "" || !slices.Contains(h.alone, false) {
		return ""
	}
	dir := filepath.Join(h.rankDir, "python")
	file := filepath.Join(dir, "sitecustomize.py")
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		h.laid = append(h.laid, dir, file)
		err = os.WriteFile(file, pythonHook, 0o644)
	}
	if err != nil {
		h.log("--python-abort: %v", err)
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
