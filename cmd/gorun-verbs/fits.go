package main

import (
	"debug/elf"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// fits says why a program would not run on the library, nil where it would or that cannot be told: a script
// may start anything.
func fits(program, library string) error {
	f, err := elf.Open(program)
	if err != nil {
		return nil
	}
	defer f.Close()
	interpreter := ""
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return err
			}
			interpreter = strings.TrimRight(string(b), "\x00")
		}
	}
	switch {
	case f.Type == elf.ET_EXEC && interpreter == "", f.Type == elf.ET_DYN && interpreter == "":
		return fmt.Errorf("%s is a static program: it loads no library, so it cannot get a software device; link it with -libverbs, or if it is a launcher let it start gorun-verbs, as: gorun -np 2 gorun-verbs PROGRAM", program)
	case strings.Contains(interpreter, "ld-musl"):
		return fmt.Errorf("%s is a program for musl (%s), and the software device is for programs of glibc", program, interpreter)
	}
	own, err := elf.Open(library)
	if err != nil {
		return fmt.Errorf("%s: %w", library, err)
	}
	defer own.Close()
	versions, err := own.DynamicVersions()
	if err != nil {
		return fmt.Errorf("%s: %w", library, err)
	}
	var have []string
	for _, v := range versions {
		have = append(have, v.Name)
	}
	// Its libraries too: perftest loads libmlx5, which needs private functions of the libibverbs that it was built with.
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil
	}
	files := []string{program}
	for _, name := range needed {
		for _, pattern := range []string{"/lib/*-linux-gnu/", "/usr/lib/*-linux-gnu/", "/usr/lib64/", "/usr/local/lib/"} {
			found, _ := filepath.Glob(pattern + name) // the pattern is well formed
			files = append(files, found...)
		}
	}
	for _, file := range files {
		if v := lacking(file, have); v != "" {
			return fmt.Errorf("%s needs %s of %s, which is of another rdma-core than 44 to 56, the releases that gorun-verbs stands in for", file, v, libraryName)
		}
	}
	return nil
}

// lacking is a version of libibverbs that the file needs and the library has not, "" for none.
func lacking(file string, have []string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return ""
	}
	for _, s := range symbols {
		if s.Library == libraryName && s.Version != "" && !slices.Contains(have, s.Version) {
			return s.Version
		}
	}
	return ""
}
