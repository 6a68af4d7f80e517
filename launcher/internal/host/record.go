package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/internal/lines"
	"github.com/gorun-mpi/gorun/internal/self"
)

// profileVar tells a rank of the file in which it records its calls.
const profileVar = "GORUN_PROFILE"

// recordIn is that file.
func recordIn(dir string, local int) string { return filepath.Join(dir, "calls."+strconv.Itoa(local)) }

// ProfileLibrary is what programs of other MPIs load, to record their calls.
const ProfileLibrary = "libgorun-profile.so"

// ldPreload leads the loader to what a program loads before all else.
const ldPreload = "LD_PRELOAD="

// records is what a host needs for those of its ranks.
type records struct {
	lacks string       // why programs of other MPIs make none; "": they do
	lines lines.Finder // of the programs
}

// findRecorder is the path of that library: where make build, or make install, puts it. lacks says why there is none.
func findRecorder(named string) (path, lacks string) {
	places := []string{named}
	if named == "" {
		dirs, err := self.Beside("profile")
		if err != nil {
			return "", err.Error()
		}
		places = []string{filepath.Join(dirs[0], ProfileLibrary), filepath.Join(dirs[1], ProfileLibrary)}
	}
	for _, path := range places {
		if _, err := os.Stat(path); err == nil && !strings.ContainsAny(path, ": ") { // which part LD_PRELOAD
			return path, ""
		}
	}
	return "", fmt.Sprintf("calls of MPICH, Open MPI and Python are not recorded: no %s; make build makes it where there is a C compiler", strings.Join(places, " and no "))
}

// withoutRecorder is what a user preloads, without what an outer gorun does.
func withoutRecorder(list string) string {
	files := strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ' ' })
	return strings.Join(slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == ProfileLibrary }), ":")
}

// tellRecord passes on what a rank has recorded, however it has ended. A rank that is no program of an MPI has recorded nothing.
func (h *Host) tellRecord(local int, used unix.Rusage) {
	path := recordIn(h.filesDir, local)
	r, err := calls.Read(path, h.spec.Profile, h.ranks[local].goneAt, h.records.lines.Find)
	if errors.Is(err, os.ErrNotExist) {
		if h.records.lacks != "" {
			h.emit(Event{Kind: Unrecorded, Rank: -1, Text: h.records.lacks})
		}
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
