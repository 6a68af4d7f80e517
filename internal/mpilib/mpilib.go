// Package mpilib knows the MPI libraries of a machine: where they are, whose they are and
// what programs are linked with them. It reads files, and loads none.
package mpilib

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/internal/self"
)

// Standard is the library of MPI's standard ABI, by the name with which programs are linked.
// Every MPI has one of its own.
const Standard = "libmpi_abi.so.1"

// ofMPICH are the names with which programs are linked that MPICH or a relative of it was built for, as Intel MPI: gorun has a library for them too.
var ofMPICH = []string{"libmpich.so.12", "libmpi.so.12"}

// The MPIs.
const (
	OpenMPI = "Open MPI"
	MPICH   = "MPICH"
	Own     = "gorun" // the one of this project, on the engine of Go programs
)

// DebianParameters is where Debian's Open MPI reads its parameters.
const DebianParameters = "/etc/openmpi/openmpi-mca-params.conf"

// Parameter is what a file of Open MPI's parameters sets one to: the last line that does counts; "": none.
func Parameter(text, name string) (value string) {
	for line := range strings.Lines(text) {
		if key, v, found := strings.Cut(line, "="); found && strings.TrimSpace(key) == name {
			value = strings.TrimSpace(v)
		}
	}
	return value
}

// A Library is a library of an MPI.
type Library struct {
	Path   string // without symbolic links
	MPI    string // whose it is: OpenMPI, MPICH, Own, or "" if that is not known
	Soname string // by which programs are linked with it
}

// Open looks at a file.
func Open(path string) (Library, error) {
	l := Library{Path: path}
	f, err := os.Open(path)
	if err != nil {
		return l, reason(err)
	}
	defer f.Close()
	if real, err := filepath.EvalSymlinks(path); err == nil {
		l.Path = real
	}
	e := Read(f)
	switch {
	case !e.OK:
		return l, fmt.Errorf("%s is no library of 64 bits", path)
	case e.Machine != machine():
		return l, fmt.Errorf("%s is a library for another kind of machine", path)
	}
	l.Soname = e.Soname
	linked := func(prefix string) bool {
		return slices.ContainsFunc(e.Needed, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	engine := fileExists(filepath.Join(filepath.Dir(l.Path), "libgorun-mpi.so"))
	switch name := strings.ToLower(l.Path); {
	case engine && (e.Soname == Standard || slices.Contains(ofMPICH, e.Soname)):
		l.MPI = Own
	case linked("libopen_mpi.so"), linked("libopen-pal.so"), linked("libopen-rte.so"), strings.HasPrefix(e.Soname, "libmpi.so.40"), strings.Contains(name, "openmpi"):
		l.MPI = OpenMPI
	case strings.HasPrefix(e.Soname, "libmpich.so"), strings.Contains(name, "mpich"):
		l.MPI = MPICH
	}
	return l, nil
}

// Version is the version of its MPI, "" if it is not there to be read: the only text of three
// numbers of its file, as in MPICH 4.0 to 5.0 and Open MPI 4.1 to 6.0.
func (l *Library) Version() string {
	text, err := os.ReadFile(l.Path)
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`\x00([1-9][0-9]*\.[0-9]+\.[0-9]+(?:(?:rc|a|b)[0-9]+)?)\x00`).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// String names it, with its version.
func (l *Library) String() string {
	return strings.Join(strings.Fields(cmp.Or(l.MPI, "MPI")+" "+l.Version()), " ") + ", " + l.Path
}

// machine is this machine's kind in the words of ELF; 0 where it is not known.
func machine() uint16 { return map[string]uint16{"amd64": 62, "arm64": 183}[runtime.GOARCH] }

// Directories are where libraries of MPIs are looked for, gorun's own and those of LD_LIBRARY_PATH first.
func Directories(environ []string) (dirs []string) {
	dirs, _ = self.Beside("abi") // none where this program's own file is not known
	for dir := range strings.SplitSeq(envvar.Get(environ, "LD_LIBRARY_PATH"), ":") {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	triplet := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu"
	for _, dir := range []string{"/usr/local/lib", "/usr/lib/" + triplet, "/usr/lib64", "/usr/lib", "/opt"} {
		dirs = append(dirs, dir)
		for _, mpi := range []string{"mpich", "openmpi"} {
			dirs = append(dirs, filepath.Join(dir, mpi, "lib"))
		}
	}
	return dirs
}

// List are the libraries of MPIs in these directories, each file once.
func List(dirs []string) (list []Library) {
	for _, dir := range dirs {
		for _, pattern := range []string{"libmpi_abi*.so*", "libmpich.so*", "libmpi.so*"} {
			names, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, name := range names {
				l, err := Open(name)
				if err == nil && l.Soname != "" && !slices.ContainsFunc(list, func(o Library) bool { return o.Path == l.Path }) {
					list = append(list, l)
				}
			}
		}
	}
	return list
}

// Find finds the library of the standard ABI that a user has named: gorun, mpich, openmpi, a
// file or its directory.
func Find(name string, environ []string) (Library, error) {
	if strings.Contains(name, "/") {
		return at(name)
	}
	mpi := map[string]string{"gorun": Own, "mpich": MPICH, "openmpi": OpenMPI}[strings.ToLower(name)]
	if mpi == "" {
		return Library{}, errors.New("expected gorun, mpich, openmpi, or the path of a library or of its directory")
	}
	dirs := Directories(environ)
	others := ""
	for _, l := range List(dirs) {
		switch {
		case l.MPI != mpi:
		case l.Soname == Standard:
			return l, nil
		default:
			others = "; " + l.Path + " is of its own ABI"
		}
	}
	if mpi == Own {
		return Library{}, fmt.Errorf("no %s of gorun's own beside this program: make build makes it where there is a C compiler", Standard)
	}
	return Library{}, fmt.Errorf("no library of the standard ABI (%s) of %s in LD_LIBRARY_PATH, %s and the like%s; try the library's path", Standard, mpi, dirs[len(dirs)-12], others)
}

// at is a library at a path, or in a directory.
func at(path string) (Library, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Library{}, err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil: // where it was looked for, as the user may have written less
		return Library{}, fmt.Errorf("%s: %w", path, reason(err))
	case info.IsDir():
		path = filepath.Join(path, Standard)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return Library{}, fmt.Errorf("no %s in it", Standard)
		}
	}
	l, err := Open(path)
	if err == nil && l.Soname != Standard {
		err = fmt.Errorf("it is %s, of an MPI's own ABI; expected %s, the standard one", cmp.Or(l.Soname, "a library without a name"), Standard)
	}
	return l, err
}

// Faces are the files that a library is loaded from, by the names with which programs are linked: gorun's own has one for MPICH's ABI beside it.
func (l *Library) Faces() map[string]string {
	faces := map[string]string{Standard: l.Path}
	if l.MPI == Own {
		for _, name := range ofMPICH {
			if file := filepath.Join(filepath.Dir(l.Path), name); fileExists(file) {
				faces[name] = file
			}
		}
	}
	return faces
}

func fileExists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Unfit is why a program would not load this library, which is chosen for it; "" if it may. Of what is no ELF file, as a script, that cannot be known.
func (l *Library) Unfit(program string) string {
	f, err := os.Open(program)
	if err != nil {
		return ""
	}
	defer f.Close()
	e := Read(f)
	faces, led := l.Faces(), false
	own := slices.IndexFunc(e.Needed, func(name string) bool {
		led = led || faces[name] != ""
		return faces[name] == "" && (strings.HasPrefix(name, "libmpi.so.") || strings.HasPrefix(name, "libmpich.so."))
	})
	switch {
	case !e.OK:
		return ""
	case own >= 0:
		return "it is linked with " + e.Needed[own] + ", of an MPI's own ABI; expected " + strings.Join(slices.Sorted(maps.Keys(faces)), " or ") + ": compile it with mpicc_abi, or with the header of the standard ABI and -lmpi_abi"
	case e.Go:
		return "it is a program of Go, which loads no MPI"
	case len(e.Needed) == 0:
		return "it is static, and loads no library"
	case led && e.Rpath != "":
		return "its RPATH (" + e.Rpath + ") comes before every choice; link it with -Wl,--enable-new-dtags, or without it"
	}
	return ""
}

// reason is an error of the system without the call and the path.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
