package rdma

import (
	"fmt"
	"syscall"
)

// Errors to test for. Each is the errno that libibverbs returns, so
// errors.Is works with these names and with the errno.
const (
	ErrInvalid      = syscall.EINVAL     // an argument, an attribute or a state is invalid
	ErrBusy         = syscall.EBUSY      // the object is still in use by others
	ErrNoMemory     = syscall.ENOMEM     // the queue is full (at a post), or the device has no resources left
	ErrNotSupported = syscall.EOPNOTSUPP // the device does not support it
	ErrNoDevice     = syscall.ENODEV     // there is no device with that name, or it was removed
)

// An OpError says which verb failed, on which object, and why. Unwrap returns the errno.
type OpError struct {
	Op     string // the verb as in libibverbs: "reg_mr", "modify_qp"
	Detail string // what was found, and what was expected
	Err    error
}

func (e *OpError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.Detail, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }
