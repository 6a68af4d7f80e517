//go:build !linux

package rdmatest

import "errors"

func mapPages(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func turnPages([]byte, pageOp) (int, error) { return 0, errors.ErrUnsupported }
