package soft

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// inode names a file by what all that have it open see of it.
func inode(f *os.File) ([]byte, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if e := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); e != nil {
		return nil, e
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, st.Dev), st.Ino), err
}
