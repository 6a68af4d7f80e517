//go:build race || (!amd64 && !arm64)

package arch

// StoreRelease32 stores v in *p after everything the caller loaded or stored
// before. p must be aligned.
func StoreRelease32(p *uint32, v uint32) { storeReference32(p, v) }

// StoreRelease64 is StoreRelease32 for 8 aligned bytes.
func StoreRelease64(p *uint64, v uint64) { storeReference64(p, v) }
