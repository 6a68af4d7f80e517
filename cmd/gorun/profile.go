package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/profile"
)

// profiling is what becomes of a job's profile.
type profiling struct {
	page, trace string // files; "": none
}

// profilePage is where the page is written, unless the user says where.
const profilePage = "profile.html"

func setProfile(s *settings, value string) error {
	switch value {
	case "false", "off", "no", "0":
		s.profile.page, s.job.Profile = "", s.profile.trace != ""
		return nil
	case "", "true":
		value = profilePage
	}
	s.profile.page, s.job.Profile = value, true
	return nil
}

// check refuses files that cannot be written, before the job has run for hours.
func (p profiling) check() error {
	for _, name := range []string{p.page, p.trace} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		switch {
		case err == nil && info.IsDir():
			err = unix.EISDIR
		case err == nil && !info.Mode().IsRegular():
			err = unix.Access(name, unix.W_OK)
		case err == nil || os.IsNotExist(err):
			var f *os.File
			if f, err = os.CreateTemp(filepath.Dir(linked(name)), ".gorun-profile-"); err == nil {
				err = errors.Join(f.Close(), os.Remove(f.Name()))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// write tells where the job's time went. The error is that of a file.
func (p profiling) write(result launcher.Result, errOut io.Writer) error {
	report := profile.Analyze(result.Profile)
	if p.page != "" || len(report.Ranks) == 0 {
		if err := report.Summary(errOut, "gorun: "); err != nil {
			return err
		}
	}
	if len(report.Ranks) == 0 {
		return nil
	}
	var errs []error
	if p.page != "" {
		as := report.WritePage
		if filepath.Ext(p.page) == ".json" {
			as = report.WriteJSON
		}
		errs = append(errs, writeFile(p.page, as))
	}
	if p.trace != "" {
		errs = append(errs, writeFile(p.trace, report.WriteTrace))
	}
	return errors.Join(errs...)
}

// linked is the file that a name stands for: a link stays one.
func linked(name string) string {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		return to
	}
	return name
}

// writeFile writes a file that is there with all that belongs into it, or as it was before. What is no regular file is written as it is.
func writeFile(name string, write func(io.Writer) error) (err error) {
	mask := unix.Umask(0o77) // which is how it is asked for
	unix.Umask(mask)
	mode := os.FileMode(0o666 &^ mask)
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		name, mode = linked(name), info.Mode().Perm()
	} else if err == nil {
		signal.Reset(unix.SIGHUP, unix.SIGINT, unix.SIGTERM) // a FIFO that nobody reads is waited for: they end that
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".gorun-profile-")
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", name, err), os.Remove(f.Name()))
	}
	return err
}
