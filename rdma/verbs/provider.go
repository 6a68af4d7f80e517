package verbs

import (
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// DefaultLibrary is the name by which libibverbs is looked for.
const DefaultLibrary = "libibverbs.so.1"

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

	mu  sync.Mutex
	lib *library // nil until it was found
	// facts are what was found out about a device once for all its contexts.
	facts map[string]*facts
}

var _ rdma.Provider = (*Provider)(nil)

// New makes a provider. The library is loaded at the first call of Devices.
func New(cfg Config) *Provider {
	if cfg.Library == "" {
		cfg.Library = DefaultLibrary
	}
	return &Provider{cfg: cfg, facts: make(map[string]*facts)}
}

// Name is "verbs".
func (*Provider) Name() string { return "verbs" }
