package topo

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// read is a small file without the blanks around it, "" when there is none.
func read(root fs.FS, elem ...string) string {
	return strings.TrimSpace(readFile(root, path.Join(elem...)))
}

// readFile reads one of the kernel's small files, "" when it cannot.
func readFile(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(text)
}

// kernel is the files of the running kernel, to be read whole. Not by package
// os, whose first open file starts the runtime's network poller: a launcher of
// short programs would notice.
type kernel struct{}

var _ fs.ReadFileFS = kernel{}

// Open is what fs.FS demands; nobody calls it.
func (kernel) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
}

// ReadFile reads a file below the root directory.
func (kernel) ReadFile(name string) ([]byte, error) {
	fd, err := syscall.Open("/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: err}
	}
	defer syscall.Close(fd)
	var text []byte
	buf := make([]byte, 4<<10)
	for {
		switch n, err := syscall.Read(fd, buf); {
		case err == syscall.EINTR:
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: "/" + name, Err: err}
		case n <= 0:
			return text, nil
		default:
			text = append(text, buf[:n]...)
		}
	}
}
