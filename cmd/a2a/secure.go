//go:build secure

package main

import "github.com/gorun-mpi/gorun/rdma/soft/softtls"

// a2a-secure is a2a with TLS.
func init() { handshake = softtls.Handshake }
