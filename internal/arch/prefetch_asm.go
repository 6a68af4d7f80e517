//go:build amd64 || arm64

package arch

// PrefetchWrite asks for some cache lines from p on, to be written soon: another CPU's
// copy of them is on its way out while the caller does something else (PREFETCHW on
// amd64, PRFM PSTL1KEEP on arm64). It is a hint, and reads nothing: any address will do.
//
//go:noescape
func PrefetchWrite(p *uint64, lines int)

// PrefetchRead is PrefetchWrite for lines that are to be read soon.
//
//go:noescape
func PrefetchRead(p *uint64, lines int)
