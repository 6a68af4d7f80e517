//go:build amd64 && !race

package arch

// asideMost is what is copied without a chance for the runtime to step in.
const asideMost = 1 << 20

// CopyAside is copy, for what the caller will not read soon: the stores go around its
// caches (MOVNTDQ on amd64), so that they do not first fetch what they overwrite and
// what is in the caches stays there. dst and src do not overlap. Stores that follow
// are visible after those of the copy.
func CopyAside(dst, src []byte) int {
	n := min(len(dst), len(src))
	for at := 0; at < n; at += asideMost {
		copyAside(&dst[at], &src[at], min(n-at, asideMost))
	}
	return n
}

//go:noescape
func copyAside(dst, src *byte, n int)
