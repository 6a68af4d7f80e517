package orphan

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"golang.org/x/sys/unix"
)

// Sweep kills every process that has marker, NAME=value, as an entry of its
// environment, and returns when none is found any more: what was killed may still be on its way
// out then. A process that has
// cleared its environment, or that is another user's, is not found.
func Sweep(marker string) {
	entry := []byte("\x00" + marker + "\x00")
	for deadline := time.Now().Add(endLimit); time.Now().Before(deadline); time.Sleep(endPause) {
		found := false
		for _, pid := range proc.All() {
			env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if err != nil || !bytes.Contains(append([]byte{0}, env...), entry) {
				continue
			}
			found = unix.Kill(pid, unix.SIGKILL) == nil || found
		}
		if !found {
			return
		}
	}
}
