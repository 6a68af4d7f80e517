//go:build !cgo

package pmix

import "fmt"

// Server needs cgo.
type Server struct{}

// NotFound says that nobody has what was asked for.
func NotFound() Status { return -1 }

// NotSupported says that this launcher does not do that.
func NotSupported() Status { return -1 }

// Partial says that some of what was asked for was found.
func Partial() Status { return -1 }

// Failed says that it went wrong.
func Failed() Status { return -1 }

// Duplicate says that the name is taken.
func Duplicate() Status { return -1 }

// TimedOut says that it took longer than the process wants to wait.
func TimedOut() Status { return -1 }

// String is a status in words.
func (s Status) String() string { return "no libpmix" }

// Cgo tells whether this program can call a libpmix.
const Cgo = false

var errNoCgo = fmt.Errorf("%w: this program was built without cgo; build gorun-pmix where there is a C compiler (on Debian and Ubuntu: apt-get install gcc libc6-dev), with make install, or CGO_ENABLED=1 go install ./cmd/gorun-pmix", ErrUnavailable)

// Probe finds libpmix.
func Probe() (Library, error) { return Library{}, errNoCgo }

// TryMPI needs cgo.
func TryMPI(path string) error { return errNoCgo }

// Start makes the server of this process.
func Start(tmpdir, host string, h Handler) (*Server, error) { return nil, errNoCgo }

// Register makes a namespace and its local ranks known.
func (*Server) Register(Namespace) error { return errNoCgo }

// Address is where the server listens, as host:port.
func (*Server) Address(string) (string, error) { return "", errNoCgo }

// Modex asks for what a process of this node has put.
func (*Server) Modex(Proc, func(Status, []byte)) { panic(errNoCgo) }

// Deliver gives the local processes an event of another node.
func (*Server) Deliver([]byte) error { return errNoCgo }

// Deregister forgets a namespace.
func (*Server) Deregister(string) { panic(errNoCgo) }

// Ping returns when libpmix's thread has answered.
func (*Server) Ping() error { return errNoCgo }
