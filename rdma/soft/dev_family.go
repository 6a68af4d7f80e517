package soft

import (
	"fmt"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// A family counts what is made of an object: its children, which keep it open.
type family struct {
	name string // of the object, for errors

	familyMu sync.Mutex // guards what follows
	children int
	ended    bool
}

// adopt counts a new child.
func (f *family) adopt(op string) error {
	f.familyMu.Lock()
	defer f.familyMu.Unlock()
	if f.ended {
		return &rdma.OpError{Op: op, Detail: "the " + f.name + " is closed", Err: rdma.ErrInvalid}
	}
	f.children++
	return nil
}

func (f *family) disown() {
	f.familyMu.Lock()
	f.children--
	f.familyMu.Unlock()
}

// end closes the object, unless it has children, of which has says more. before: it was closed already.
func (f *family) end(op, has string) (before bool, err error) {
	f.familyMu.Lock()
	defer f.familyMu.Unlock()
	if f.children > 0 {
		return false, &rdma.OpError{Op: op, Detail: fmt.Sprintf("%d %s: close them first", f.children, has), Err: rdma.ErrBusy}
	}
	before, f.ended = f.ended, true
	return before, nil
}
