package verbs

import (
	"cmp"
	"github.com/gorun-mpi/gorun/rdma"
)

// DefaultLibrary is the default file name of libibverbs.
const DefaultLibrary = "libibverbs.so.1"

// Reasons for which Devices cannot use libibverbs at all. errors.Is with [rdma.ErrNotSupported] is true for each.
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

// Config configures a Provider. The zero value holds the defaults.
type Config struct {
	// Library is the file name or path of libibverbs; "": DefaultLibrary.
	Library string
}

// A Provider lists the devices of libibverbs. It holds no resources and need not be closed.
type Provider struct {
	cfg Config
	found
}

var _ rdma.Provider = (*Provider)(nil)

// New makes a provider. The first call of Devices loads the library.
func New(cfg Config) *Provider {
	cfg.Library = cmp.Or(cfg.Library, DefaultLibrary)
	return &Provider{cfg: cfg, found: found{}}
}

// Name is "verbs".
func (*Provider) Name() string { return "verbs" }
