package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/gorun-mpi/gorun/internal/mpilib"
)

// libraryPath leads the loader.
const libraryPath = "LD_LIBRARY_PATH="

// chooseMPI finds the MPI that Spec.MPI names, for programs of the standard ABI, and gives
// a directory where the loader finds it by their names for it; "" where none is named.
func (s *starter) chooseMPI(files []string) (string, error) {
	if s.spec.Hosting.MPI == "" {
		return "", nil
	}
	fail := func(err error) (string, error) {
		return "", &startError{2, "Hosting.MPI", s.spec.Hosting.MPI, fmt.Errorf("host %s: %w", s.spec.Host, err)}
	}
	library, err := mpilib.Find(s.spec.Hosting.MPI, s.spec.users())
	if err != nil {
		return fail(err)
	}
	for i, file := range files {
		if file == "" {
			continue
		}
		app := &s.spec.Apps[i]
		if !filepath.IsAbs(file) {
			file = filepath.Join(app.Dir, file)
		}
		if why := library.Unfit(file); why != "" {
			return fail(fmt.Errorf("%s cannot load it: %s", app.Argv[0], why))
		}
	}
	if s.rankDir == "" {
		return fail(errors.New("there is no directory for the job"))
	}
	dir := filepath.Join(s.rankDir, "mpi")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fail(err)
	}
	for name, path := range library.Faces() {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			return fail(err)
		}
	}
	if s.cfg.Log != nil && s.cfg.Log.Enabled(s.ctx, slog.LevelInfo) { // it reads all of the file
		s.logAt(slog.LevelInfo, "--mpi %s: ranks load %s", s.spec.Hosting.MPI, library.String())
	}
	return dir, nil
}
