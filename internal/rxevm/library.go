//go:build linux

package rxevm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// libraries lists what the loader loads for file, whose contents are data: its
// shared libraries and the loader itself. A static program and what is no ELF
// file need none.
func libraries(file string, data []byte) ([]string, error) {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	needed, err := f.ImportedLibraries()
	if err != nil || len(needed) == 0 {
		return nil, err
	}
	out, err := exec.Command("ldd", file).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", file, err)
	}
	return parseLdd(file, string(out))
}

// parseLdd reads ldd's lines: "name => path (address)", "path (address)" for
// the loader, "name (address)" for the kernel's own, "name => not found".
func parseLdd(file, out string) ([]string, error) {
	var list []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "=> not found") {
			return nil, fmt.Errorf("%s needs the library %s, which is not installed", file, strings.Fields(line)[0])
		}
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				list = append(list, word)
				if !strings.Contains(line, "=>") {
					break
				}
			}
		}
	}
	return list, nil
}

// placed gives the path under which the guest has a file of the host: that of
// the host without symbolic links among the directories, since the guest has
// only those from /lib to /usr/lib and the like.
func placed(file string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(file)), nil
}

// moduleOrder lists the files of the wanted kernel modules and of what they
// depend on, each after those it needs. A module that is built into the kernel
// needs no file.
func moduleOrder(root string, want []string) ([]string, error) {
	files := make(map[string]string) // by name
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if base, _, is := strings.Cut(filepath.Base(p), ".ko"); is && err == nil {
			files[moduleName(base)] = p
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	inside := make(map[string]bool)
	for line := range strings.Lines(string(builtin)) {
		inside[moduleName(strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)), ".ko"))] = true
	}

	var order []string
	seen := make(map[string]bool)
	var visit func(name string) error
	visit = func(name string) error {
		name = moduleName(name)
		if seen[name] || inside[name] {
			return nil
		}
		seen[name] = true
		file, ok := files[name]
		if !ok {
			return fmt.Errorf("kernel module %s is not below %s", name, root)
		}
		data, err := readPacked(file)
		if err != nil {
			return err
		}
		depends, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, d := range depends {
			if err := visit(d); err != nil {
				return err
			}
		}
		order = append(order, file)
		return nil
	}
	for _, name := range want {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName is a module's name as the kernel compares it.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// dependencies reads the names of the modules that a module needs, from the
// strings "key=value" in its section .modinfo.
func dependencies(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo: not a kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, is := strings.CutPrefix(entry, "depends="); is && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
