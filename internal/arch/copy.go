package arch

// cachedMost is less than what Go's copy stores past the caches on amd64, which is 1 MiB.
const cachedMost = 512 << 10

// Copy is copy, for what somebody will look at soon: its stores go through the caches, whatever the length.
// dst and src do not overlap.
func Copy(dst, src []byte) int {
	if len(src) <= cachedMost {
		return copy(dst, src)
	}
	return copyLong(dst, src)
}

func copyLong(dst, src []byte) (n int) {
	for length := min(len(dst), len(src)); n < length; {
		n += copy(dst[n:min(length, n+cachedMost)], src[n:])
	}
	return n
}
