//go:build !linux

package soft

import (
	"os"
	"path/filepath"
)

// inode names a file by its path.
func inode(f *os.File) ([]byte, error) {
	path, err := filepath.Abs(f.Name())
	return []byte(path), err
}
