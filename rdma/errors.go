package rdma

import (
	"fmt"
	"syscall"
)

// Errors that callers branch on. Each is an errno as libibverbs returns it, so
// errors.Is works with these and with the errno alike.
const (
	ErrInvalid      = syscall.EINVAL     // an argument, an attribute or a state does not fit
	ErrBusy         = syscall.EBUSY      // others still use the object
	ErrNoMemory     = syscall.ENOMEM     // the queue is full (post), or the device has no more
	ErrNotSupported = syscall.EOPNOTSUPP // this device cannot
	ErrNoDevice     = syscall.ENODEV     // no device of that name, or it has gone
)

// OpError says which verb failed, on what, and why. Unwrap reaches the errno.
type OpError struct {
	Op     string // the verb in libibverbs' words: "reg_mr", "modify_qp"
	Detail string // what was found and what was expected
	Err    error
}

func (e *OpError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.Detail, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }
