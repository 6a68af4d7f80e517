// Package self finds the file of this program, beside which its helpers are.
package self

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// Path is the file of this program. Where there is no /proc, as in a bare chroot, it is what the program was called as, which a
// shell has found in PATH or below the directory that this process was started in.
func Path() (string, error) {
	path, err := os.Executable()
	if err == nil {
		return path, nil
	}
	return called(os.Args, err)
}

// Beside are where make build and make install put libraries of a kind, as "verbs".
func Beside(kind string) ([]string, error) {
	path, err := Path()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	return []string{filepath.Join(dir, kind), filepath.Join(filepath.Dir(dir), "lib", "gorun", kind)}, nil
}

func called(args []string, unknown error) (string, error) {
	if len(args) == 0 {
		return "", unknown
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", errors.Join(unknown, err)
	}
	return path, nil
}
