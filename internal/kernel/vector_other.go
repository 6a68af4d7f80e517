//go:build !amd64

package kernel

func vectorized(Type, Op) Func { return nil }
