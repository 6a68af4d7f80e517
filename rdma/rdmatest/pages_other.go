//go:build !linux

package rdmatest

import "errors"

func mapPages(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func describe(int) (int, []byte, error) { return -1, nil, errors.ErrUnsupported }

func closeFD(int) {}

func turnPages([]byte, pageOp) (int, error) { return 0, errors.ErrUnsupported }
