package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Preload is a program that comes from the controller's machine. The host writes it into the job directory,
// with which it goes, whatever ends the job.
type Preload struct {
	Name string // of the file
	Size int64
	Hash string // SHA-256, in hexadecimal
}

// ErrNotWanted is what Config.Fetch gives when the ranks are not to run any more.
var ErrNotWanted = errors.New("the job is to end")

// PreloadOf describes a program's file.
func PreloadOf(f *os.File) (*Preload, error) {
	hash := sha256.New()
	n, err := io.Copy(hash, f)
	if err != nil {
		return nil, err
	}
	return &Preload{Name: filepath.Base(f.Name()), Size: n, Hash: hex.EncodeToString(hash.Sum(nil))}, nil
}

// fetchPrograms gets the programs that come from the controller, and keeps where they are, by program
// of the job. The same program is fetched once.
func (s *starter) fetchPrograms() error {
	s.preloaded = make([]string, len(s.spec.Apps))
	for i := range s.spec.Apps {
		app := &s.spec.Apps[i]
		if app.Preload == nil {
			continue
		}
		for k := range i {
			if before := s.spec.Apps[k].Preload; before != nil && *before == *app.Preload {
				s.preloaded[i] = s.preloaded[k]
			}
		}
		if s.preloaded[i] != "" {
			continue
		}
		file, err := s.fetch(i, app.Preload)
		switch {
		case errors.Is(err, ErrNotWanted):
			return err
		case err != nil:
			return &startError{1, "Argv", app.Argv[0], fmt.Errorf("--preload-binary to host %s: %w", s.spec.Host, err)}
		}
		s.preloaded[i] = file
	}
	return nil
}

// fetch gets one program into a file of its name.
func (s *starter) fetch(app int, p *Preload) (file string, err error) {
	if s.rankDir == "" {
		return "", fmt.Errorf("the directory of the job, %s, cannot be made there", s.dir)
	}
	if p.Name == "" || p.Name != filepath.Base(p.Name) || s.cfg.Fetch == nil {
		return "", fmt.Errorf("found the name %q, expected that of a file, and somebody to send it", p.Name)
	}
	file = filepath.Join(s.rankDir, "program-"+strconv.Itoa(app), p.Name)
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for at := int64(0); err == nil && at < p.Size; {
		var piece []byte
		if piece, err = s.cfg.Fetch(app, at); err != nil {
			break
		}
		if len(piece) == 0 || int64(len(piece)) > p.Size-at {
			err = fmt.Errorf("found a piece of %d bytes at %d of %d bytes, expected one of the rest", len(piece), at, p.Size)
			break
		}
		if _, err = to.Write(piece); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = fmt.Errorf("write %s: %w after %d of %d bytes; make room there, or have each host find the program by its path", file, reason(err), at, p.Size)
		}
		hash.Write(piece)
		at += int64(len(piece))
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return "", err
	}
	if found := hex.EncodeToString(hash.Sum(nil)); found != p.Hash {
		return "", fmt.Errorf("%s came with SHA-256 %.16s..., expected %.16s...: has the file of the program changed meanwhile?", file, found, p.Hash)
	}
	if err := executable(file); err != nil {
		return "", fmt.Errorf("%s cannot be executed (%w): is its file system mounted noexec? Try -x TMPDIR=DIRECTORY", file, reason(err))
	}
	return file, nil
}

// preloads tells whether programs come into the job directory.
func (s *Spec) preloads() bool {
	return slices.ContainsFunc(s.Apps, func(a AppSpec) bool { return a.Preload != nil })
}

// runsNone tells whether no program may be executed on the file system of a directory.
func runsNone(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}
