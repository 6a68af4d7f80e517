package comch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// MinKey is the least length of a key in bytes. Keys must be random: a client that connects to a
// listener between hosts is shown a public key that follows from the key, and could
// try words of a dictionary against it.
const MinKey = 16

// maxKey bounds a key file: a path given by mistake may be a device or an image.
const maxKey = 4096

// LoadKey reads a key from a file that only its owner, who is this user, can read or
// write. Line ends behind the key do not count, so that both ends may have made the file
// by an editor.
func LoadKey(path string) ([]byte, error) {
	// Not blocking: a FIFO is no key either.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has the mode %#o, expected 0600: chmod 600 %s, and if others could read it, make a new key", path, mode, path)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to user %d, expected %d, who runs this program", path, sys.Uid, os.Geteuid())
	}
	key, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return nil, err
	}
	key = bytes.TrimRight(key, "\r\n")
	if len(key) < MinKey || len(key) > maxKey {
		return nil, fmt.Errorf("%s has %d bytes, expected a key of %d to %d random ones: (umask 77; head -c 32 /dev/urandom | base64 >%s)", path, len(key), MinKey, maxKey, path)
	}
	return key, nil
}

var errNoKey = fmt.Errorf("%w: give both ends the same one", ErrNoKey)

// needKey refuses a configuration that cannot be used between hosts.
func needKey(cfg *Config) error {
	if cfg.Key == nil {
		return errNoKey
	}
	return nil
}

var errKeys = errors.New("is the key the same on both sides?")
