//go:build !amd64

package kernel

func vectorized(Type, Op) Func { return nil }

func fourfold(Type) func(dst, a, b, c, d []byte) { return nil }
