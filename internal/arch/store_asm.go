//go:build (amd64 || arm64) && !race

package arch

// StoreRelease32 stores v in *p after everything the caller loaded or stored
// before (MOV on amd64, STLR on arm64). p must be aligned. It is
// storeReference32 without the full barrier that follows there.
//
//go:noescape
func StoreRelease32(p *uint32, v uint32)

// StoreRelease64 is StoreRelease32 for 8 aligned bytes.
//
//go:noescape
func StoreRelease64(p *uint64, v uint64)
