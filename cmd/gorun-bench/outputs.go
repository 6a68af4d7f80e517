package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
)

// outputs are the files of the results. They are opened before anything is
// measured, so that a wrong name costs no waiting, and keep what they hold
// until there is something new.
type outputs struct {
	csv, json, html, tune *os.File
	svg                   string // a directory
}

func openOutputs(parser *doca.Parser, p *params) (*outputs, error) {
	o := &outputs{svg: p.svg}
	if p.svg != "" {
		if err := os.MkdirAll(p.svg, 0o777); err != nil {
			return nil, &doca.Error{Flag: parser.Name("svg"), Reason: fmt.Sprintf("cannot write the plots: %v", err)}
		}
	}
	taken := map[string]string{filepath.Clean(p.from): "from"}
	for _, f := range []struct {
		flag, name string
		file       **os.File
	}{{"csv", p.csv, &o.csv}, {"json", p.json, &o.json}, {"html", p.html, &o.html}, {"tune", p.tune, &o.tune}} {
		if f.name == "" {
			continue
		}
		reason := ""
		switch other := taken[filepath.Clean(f.name)]; other {
		case "":
			var err error
			if *f.file, err = os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
				reason = fmt.Sprintf("cannot write the results: %v", err)
			}
			taken[filepath.Clean(f.name)] = f.flag
		case "from":
			reason = "would overwrite the results that are read"
		default:
			reason = fmt.Sprintf("names the file of %s too", parser.Name(other))
		}
		if reason != "" {
			o.close()
			return nil, &doca.Error{Flag: parser.Name(f.flag), Reason: reason}
		}
	}
	return o, nil
}

func (o *outputs) close() {
	for _, f := range []*os.File{o.csv, o.json, o.html, o.tune} {
		if f != nil {
			f.Close()
		}
	}
}

// fill replaces what a file holds and closes it.
func fill(f *os.File, write func(io.Writer) error) error {
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		if err := f.Truncate(0); err != nil {
			return err
		}
	}
	return errors.Join(write(f), f.Close())
}

// write fills the files and prints the table. What one of them does not take
// is no loss to the others; the table comes last, since a pipe that nobody
// reads may end the command.
func (o *outputs) write(out io.Writer, h *header, rows []row, p *params) error {
	var errs []error
	for _, f := range []struct {
		file  *os.File
		write func(io.Writer) error
	}{
		{o.csv, func(w io.Writer) error { return writeCSV(w, rows) }},
		{o.json, func(w io.Writer) error { return writeJSON(w, h, rows) }},
		{o.html, func(w io.Writer) error { return writePage(w, h, rows) }},
	} {
		if f.file != nil {
			errs = append(errs, fill(f.file, f.write))
		}
	}
	if o.svg != "" {
		for _, f := range newPage(h, rows).Curves {
			errs = append(errs, os.WriteFile(filepath.Join(o.svg, f.name+".svg"), []byte(f.file()), 0o666))
		}
	}
	errs = append(errs, writeTable(out, rows), writeNotes(out, h, rows, p.verbose))
	return errors.Join(errs...)
}
