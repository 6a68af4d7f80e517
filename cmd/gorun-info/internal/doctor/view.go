package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/internal/meet"
	"github.com/gorun-mpi/gorun/internal/mpilib"
	"github.com/gorun-mpi/gorun/internal/ports"
)

// A View is all that the checks know of a machine. Its functions may be called
// from several goroutines at once.
type View struct {
	Root    fs.FS // the machine's files, below "/"
	Environ []string
	UID     int
	Ranks   int         // of the job that is thought of
	Ports   ports.Range // of the job; those of the environment where it names none
	Beside  string      // the directory of gorun's programs
	Version string      // what gorun-info --version says behind its name

	Now   func() time.Time
	Limit func(resource int) (soft, hard uint64, err error)
	Space func(dir string) (Space, error)

	// Trials: each does what ranks do, and leaves nothing.
	TryFile     func(dir string) error                // make a file
	TryGroup    func(dir string) error                // make a control group in one
	TryMemfd    func() error                          // make memory to share
	TryReach    func(ctx context.Context) error       // read a process's memory from another
	TryLoopback func(ctx context.Context) error       // connect over 127.0.0.1
	TryOpen     func(name string) error               // open a device for reading and writing
	Verbs       func() (devices int, err error)       // ask libibverbs how many it knows
	Membarrier  func() (commands uint64, err error)   // what it knows
	PMIx        func(ctx context.Context) PMIxSupport // ask gorun-pmix

	Libraries func() []mpilib.Library // of MPIs
	ReadELF   func(file string) (mpilib.ELF, error)

	Run        func(ctx context.Context, argv ...string) (stdout, stderr string, err error)
	Start      func(ctx context.Context, argv ...string) (*Program, error) // whose streams the caller has; it ends with ctx
	Hostname   func() (string, error)
	IsOwn      func(name string) bool // whether a name or an address is this machine's
	Resolve    func(ctx context.Context, name string) ([]netip.Addr, error)
	Reverse    func(ctx context.Context, addr netip.Addr) ([]string, error)
	Interfaces func() ([]Interface, error)
	asked      sync.Map // what the launchers have said, a func() tool by file
}

// A Program runs, and is told and says something.
type Program struct {
	meet.Stream
	Wait func() (stderr string, err error) // for its end, once its output was read
}

// Space is a file system's.
type Space struct {
	Total, Free uint64 // bytes
	NoExec      bool
}

// PMIxSupport is what gorun-pmix says of itself.
type PMIxSupport struct {
	Helper  string // its file
	Exists  bool
	Cgo     bool   // it was built to call libpmix
	Library string // libpmix, and its version
	Version string
	Problem string // why Open MPI's programs cannot be served; "" when they can
}

// Interface is a network interface that is up.
type Interface struct {
	Name  string
	Addrs []netip.Addr
}

// text is a small file without the blanks around it, "" when there is none.
func (v *View) text(elem ...string) string {
	text, err := fs.ReadFile(v.Root, strings.TrimPrefix(path.Join(elem...), "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// number is a file with a number in it.
func (v *View) number(elem ...string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(v.text(elem...), 10, 64)
	return n, err == nil
}

// status is a line of /proc/self/status.
func (v *View) status(key string) string { return v.line("proc/self/status", key) }

// line is what stands behind "key:" in a file; "": nothing does.
func (v *View) line(file, key string) string {
	for line := range strings.Lines(v.text(file)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// variable is one of the environment's.
func (v *View) variable(name string) string { return envvar.Get(v.Environ, name) }

// stat is a file's; name may begin with "/".
func (v *View) stat(name string) (fs.FileInfo, error) {
	return fs.Stat(v.Root, strings.TrimPrefix(path.Clean(name), "/"))
}

// program finds an executable in PATH, or says "".
func (v *View) program(name string) string {
	for dir := range strings.SplitSeq(v.variable("PATH"), ":") {
		if path.IsAbs(dir) && v.executable(path.Join(dir, name)) {
			return path.Join(dir, name)
		}
	}
	return ""
}

func (v *View) executable(name string) bool {
	info, err := v.stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// size is a number of bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if f < 10 && i > 0 && f != float64(int(f)) {
		return fmt.Sprintf("%.1f %s", f, units[i])
	}
	return fmt.Sprintf("%.0f %s", f, units[i])
}

// count is "1 rank", "2 ranks".
func count[N int | uint64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shellWord is text as one word of a shell's.
func shellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
