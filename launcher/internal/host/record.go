package host

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/calls"
)

// profileVar tells a rank of the file in which it records its calls.
const profileVar = "GORUN_PROFILE"

// recordIn is that file.
func recordIn(dir string, local int) string { return filepath.Join(dir, "calls."+strconv.Itoa(local)) }

// tellRecord passes on what a rank has recorded, however it has ended. A rank that is no program of package rank has recorded nothing.
func (h *Host) tellRecord(local int, used unix.Rusage) {
	path := recordIn(h.filesDir, local)
	r, err := calls.Read(path, h.spec.Profile, h.ranks[local].goneAt)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var data []byte
	if err == nil {
		r.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
		r.Memory = int64(used.Maxrss) << 10 //nolint:unconvert // it has 32 bits on some architectures
		data, err = r.Pack()
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		h.log("record of rank %d's calls: %v", h.rankOf(local), err)
	}
	if data != nil {
		h.emit(Event{Kind: Recorded, Rank: h.rankOf(local), Data: data})
	}
}
