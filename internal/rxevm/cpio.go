//go:build linux

package rxevm

import (
	"bufio"
	"fmt"
	"io"
	"path"
)

// archive writes an initramfs: a cpio archive in the "newc" form, which the
// kernel unpacks at boot. Directories are made as files need them.
type archive struct {
	w    *bufio.Writer
	done map[string]bool // paths that are in the archive
	ino  int
	err  error // the first failed write
}

// File types and permissions of cpio entries.
const (
	modeDir  = 0o040755
	modeFile = 0o100755
	modeLink = 0o120777
)

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), done: make(map[string]bool)}
}

// file adds a file under an absolute path; a second one of that path is left out.
func (a *archive) file(name string, data []byte) { a.add(name, modeFile, data) }

// link adds a symbolic link.
func (a *archive) link(name, target string) { a.add(name, modeLink, []byte(target)) }

func (a *archive) dir(name string) {
	if name != "/" {
		a.add(name, modeDir, nil)
	}
}

func (a *archive) add(name string, mode int, data []byte) {
	if a.done[name] {
		return
	}
	a.done[name] = true
	a.dir(path.Dir(name))
	a.entry(name[1:], mode, data)
}

// entry writes one header, its name and its data, each padded to four bytes.
func (a *archive) entry(name string, mode int, data []byte) {
	a.ino++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.padded([]byte(header))
	a.padded(data)
}

func (a *archive) padded(b []byte) {
	for _, part := range [][]byte{b, make([]byte, -len(b)&3)} {
		if _, err := a.w.Write(part); err != nil && a.err == nil {
			a.err = err
		}
	}
}

// close writes the archive's end.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	if err := a.w.Flush(); a.err == nil {
		a.err = err
	}
	return a.err
}
