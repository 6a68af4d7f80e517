package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// temporaryDirectory is where programs put temporary files.
func (v *View) temporaryDirectory() string {
	if dir := v.variable("TMPDIR"); dir != "" {
		return dir
	}
	return "/tmp"
}

// Session directories of Open MPI take some 60 characters behind TMPDIR, and
// the path of a socket has 107 at most.
const longDirectory = 48

func temporary(_ context.Context, v *View) Finding {
	dir := v.temporaryDirectory()
	const unset = "unset TMPDIR (then it is /tmp), or export TMPDIR=DIRECTORY"
	if !path.IsAbs(dir) {
		return problem(unset, "TMPDIR=%s is not an absolute path", dir)
	}
	info, err := v.stat(dir)
	if err != nil || !info.IsDir() {
		return problem("mkdir -p "+shellWord(dir), "%s is no directory", dir)
	}
	s, err := v.Space(dir)
	if err != nil {
		return problem(unset, "%s: %v", dir, err)
	}
	if err := v.TryFile(dir); err != nil {
		return problem(unset, "no file can be made in %s: %v", dir, err)
	}
	found := fmt.Sprintf("%s, %s free of %s", dir, size(s.Free), size(s.Total))
	switch {
	case s.Free < 16<<20:
		return problem("du -xsh "+shellWord(dir)+"/* | sort -h, and remove what is old", "%s", found)
	case s.Free < 256<<20:
		return note("du -xsh "+shellWord(dir)+"/* | sort -h, and remove what is old", "%s", found)
	case s.NoExec:
		return note("mount -o remount,exec "+shellWord(dir), "%s; noexec: programs in it cannot be executed", found)
	case len(dir) > longDirectory:
		return note("export TMPDIR=/tmp", "%s; the name is so long that paths of sockets in it exceed their limit", found)
	}
	return ok("%s", found)
}

// remains are the names of what jobs make and remove when they end in order.
var remains = [...]struct {
	pattern string
	shared  bool     // in /dev/shm, else in the temporary directory
	owners  []string // programs while one of which runs it is in use; nil: those that have it open or mapped
}{
	{"gorun-job-*", true, nil},
	{"vader_segment.*", true, nil},
	{"sm_segment.*", true, nil},
	{"osc_rdma.*", true, nil},
	{"ucx_shm_posix_*", true, nil},
	{"mpich_shar_tmp*", true, nil},
	{"psm2_shm.*", true, nil},
	{"Intel_MPI_*", true, nil},
	{"gorun-job-*", false, nil},
	{"ompi.*.*", false, []string{"mpirun", "mpiexec", "orterun", "orted", "prte", "prted", "prterun", "mpirun.openmpi", "mpiexec.openmpi"}},
	{"prte.*", false, []string{"mpirun", "mpiexec", "prte", "prted", "prterun"}},
}

// young is an age below which something may belong to a job that just starts.
const young = time.Minute

func leftovers(_ context.Context, v *View) Finding {
	if v.text("proc/self/maps") == "" {
		return ok("not known: /proc does not show which process uses which file")
	}
	var candidates []candidate
	for _, r := range remains {
		dir := v.temporaryDirectory()
		if r.shared {
			dir = "/dev/shm"
		}
		names, err := fs.Glob(v.Root, path.Join(strings.TrimPrefix(dir, "/"), r.pattern))
		if err != nil {
			continue
		}
		for _, name := range names {
			info, err := fs.Stat(v.Root, name)
			if err != nil || v.Now().Sub(info.ModTime()) < young || !v.owns(info) {
				continue
			}
			candidates = append(candidates, candidate{"/" + name, info, r.owners})
		}
	}
	if len(candidates) == 0 {
		return ok("none")
	}
	candidates = v.unused(candidates)
	if len(candidates) == 0 {
		return ok("none; all such files are in use")
	}
	var bytes uint64
	var words, names []string
	for _, c := range candidates {
		if !c.info.IsDir() {
			bytes += uint64(max(0, c.info.Size()))
		}
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
			words = append(words, shellWord(c.name))
		}
	}
	shown := names
	if len(shown) > 3 {
		shown = append(slices.Clone(shown[:3]), "...")
	}
	return note("rm -rf -- "+strings.Join(words, " "), "%d of dead jobs, %s: %s", len(names), size(bytes), strings.Join(shown, ", "))
}

type candidate struct {
	name   string
	info   fs.FileInfo
	owners []string
}

// owns tells whether a file is this user's; all are root's to remove.
func (v *View) owns(info fs.FileInfo) bool {
	st, known := info.Sys().(*syscall.Stat_t)
	return v.UID == 0 || known && int(st.Uid) == v.UID
}

// unused leaves those that no process has to do with. A process of another user
// cannot be looked into, but neither can it use what is this user's alone.
func (v *View) unused(list []candidate) []candidate {
	entries, err := fs.ReadDir(v.Root, "proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		dir := path.Join("proc", e.Name())
		maps, environ, comm := v.text(dir, "maps"), v.text(dir, "environ"), v.text(dir, "comm")
		open := v.opened(dir)
		list = slices.DeleteFunc(list, func(c candidate) bool {
			if c.owners != nil {
				return slices.Contains(c.owners, comm)
			}
			if strings.Contains(maps, c.name) || strings.Contains(open, c.name) {
				return true
			}
			job, isJob := strings.CutPrefix(path.Base(c.name), "gorun-job-")
			if !isJob {
				return false
			}
			if i := strings.LastIndexByte(job, '-'); i > 0 {
				job = job[:i]
			}
			return strings.Contains(environ, "GORUN_GUARD_"+job+"_") || strings.Contains(environ, "GORUN_JOB="+job+"\x00") || strings.Contains(environ, c.name)
		})
	}
	return list
}

// opened is what a process has open, a file a line.
func (v *View) opened(dir string) string {
	entries, err := fs.ReadDir(v.Root, path.Join(dir, "fd"))
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, e := range entries {
		if target, err := fs.ReadLink(v.Root, path.Join(dir, "fd", e.Name())); err == nil {
			b.WriteString(target + "\n")
		}
	}
	return b.String()
}
