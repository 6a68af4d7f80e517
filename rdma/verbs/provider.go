package verbs

import (
	"cmp"
	"github.com/gorun-mpi/gorun/rdma"
)

// DefaultLibrary is the name by which libibverbs is looked for.
const DefaultLibrary = "libibverbs.so.1"

// Reasons for which Devices cannot ask libibverbs at all. Each is an
// rdma.ErrNotSupported too.
const (
	ErrNoCgo     = lack("this program was built without cgo")
	ErrNoLibrary = lack("there is no libibverbs that can be used")
	ErrNoKernel  = lack("the kernel has no RDMA: the module ib_uverbs is not loaded")
)

// A lack is one of these.
type lack string

func (l lack) Error() string { return string(l) }

// Is tells that each of them means rdma.ErrNotSupported.
func (l lack) Is(target error) bool { return target == rdma.ErrNotSupported }

// Config says where the provider finds its library. The zero value is the
// usual place.
type Config struct {
	// Library is the file name or path of libibverbs, DefaultLibrary when "".
	Library string
}

// A Provider names the devices that libibverbs knows. It holds no resource: it
// need not be closed.
type Provider struct {
	cfg Config
	found
}

var _ rdma.Provider = (*Provider)(nil)

// New makes a provider. The library is loaded at the first call of Devices.
func New(cfg Config) *Provider {
	cfg.Library = cmp.Or(cfg.Library, DefaultLibrary)
	return &Provider{cfg: cfg, found: found{}}
}

// Name is "verbs".
func (*Provider) Name() string { return "verbs" }
