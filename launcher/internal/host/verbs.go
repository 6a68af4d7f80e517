package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/self"
)

// verbsLibrary is what programs of verbs are linked with, and rdma/dropin stands in for.
const verbsLibrary = "libibverbs.so.1"

// findVerbs is the directory of the libibverbs.so.1 with software devices, where Hosting.Emulate names some and a
// program is linked with libibverbs; else "".
func (s *starter) findVerbs() (string, error) {
	app := slices.Index(s.server.verbs, true)
	if app < 0 || len(s.spec.Hosting.Emulate) == 0 {
		return "", nil
	}
	dirs, err := self.Beside("verbs")
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, verbsLibrary)); err == nil {
			return dir, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("host %s: %s is linked with %s, and there is none with software devices in %s: make build makes it where there is a C compiler",
			s.spec.Host, s.spec.Apps[app].Argv[0], verbsLibrary, strings.Join(dirs, " or "))
	}
	return "", &startError{2, "Hosting.Emulate", strings.Join(s.spec.Hosting.Emulate, ","), err}
}

// verbsSettings are a program's environment with the devices of Hosting.Emulate, as gorun-verbs gives them. The job's programs
// reach each other alone, unless the environment names a fabric.
func verbsSettings(spec *Spec, user []string, dir string) []string {
	const devices, fabric = "GORUN_VERBS_DEVICES=", "GORUN_VERBS_FABRIC="
	named := slices.ContainsFunc(user, func(entry string) bool { return strings.HasPrefix(entry, fabric) })
	user = slices.DeleteFunc(slices.Clone(user), func(entry string) bool { return strings.HasPrefix(entry, devices) })
	user = append(before(user, libraryPath, dir), devices+strings.Join(spec.Hosting.Emulate, ","))
	if !named {
		job, _, _ := strings.Cut(spec.Job, "_") // also of a group that its ranks have spawned
		user = append(user, fabric+job)
	}
	return user
}
