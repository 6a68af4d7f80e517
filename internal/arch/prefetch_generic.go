//go:build !amd64 && !arm64

package arch

// PrefetchWrite is where other architectures ask for cache lines.
func PrefetchWrite(p *uint64, lines int) {}

// PrefetchRead is where other architectures ask for cache lines.
func PrefetchRead(p *uint64, lines int) {}
