package comch

import (
	"crypto/tls"

	"github.com/gorun-mpi/gorun/internal/tlskey"
)

// protocol is what both ends must speak, in ALPN and in the hello of one host.
const protocol = "gorun-comch/1"

const (
	roleServer = tlskey.Server
	roleClient = tlskey.Client
)

// tlsConfig is that of one end of a channel between hosts, whose secret is the key.
func tlsConfig(cfg *Config, role tlskey.Role) (*tls.Config, error) {
	return tlskey.Config(cfg.Key, protocol, cfg.Name, role)
}
