package doca

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
)

// maxFile bounds a parameter file: a path given by mistake may be a device or
// a core file.
const maxFile = 256 << 10

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("longer than the %d bytes that a parameter file may have", maxFile)
	}
	return data, err
}

// readFile notes what the parameter file gives for flags that the command line
// leaves open.
func (p *Parser) readFile(path string) error {
	data, err := readBounded(path)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		return &Error{Flag: "-j", Reason: fmt.Sprintf("cannot read the parameter file %q: %v", path, err)}
	}
	f := paramFile{parser: p, path: path, data: data}
	return f.read()
}

// paramFile is a parameter file being read.
type paramFile struct {
	parser *Parser
	path   string
	data   []byte
}

// fail makes an error about the place offset bytes into the file.
func (f *paramFile) fail(flag string, offset int, format string, args ...any) error {
	line := 1 + bytes.Count(f.data[:min(offset, len(f.data))], []byte{'\n'})
	return &Error{Flag: flag, Reason: fmt.Sprintf(format, args...) + fmt.Sprintf(" (%s:%d)", f.path, line)}
}

func (f *paramFile) read() error {
	root, err := hujson.Parse(f.data)
	if err != nil {
		return &Error{Flag: "-j", Reason: fmt.Sprintf("%s is not JSON: %v", f.path, err)}
	}
	top, ok := root.Value.(*hujson.Object)
	if !ok {
		return f.fail("-j", root.StartOffset, "found %s, expected an object of flags", found(root))
	}
	seen := map[string]bool{}
	for _, m := range top.Members {
		name := m.Name.Value.(hujson.Literal).String()
		var general bool
		switch name {
		case "doca_general_flags", "gorun_general_flags":
			general = true
		case "doca_program_flags", "gorun_program_flags":
		default:
			return f.fail("-j", m.Name.StartOffset,
				"found the section %q, expected doca_general_flags, doca_program_flags, gorun_general_flags or gorun_program_flags", name)
		}
		section, ok := m.Value.Value.(*hujson.Object)
		if !ok {
			return f.fail(name, m.Value.StartOffset, "found %s, expected an object of flags", found(m.Value))
		}
		for _, flag := range section.Members {
			if err := f.flag(flag, general, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// flag notes one member of a section.
func (f *paramFile) flag(m hujson.ObjectMember, general bool, seen map[string]bool) error {
	name := m.Name.Value.(hujson.Literal).String()
	e := f.parser.find(name)
	if e == nil || e.general != general || general && e.kind == toggle || e.parameters {
		return f.fail(name, m.Name.StartOffset, "unknown key; %s", f.parser.suggestKey(name, general))
	}
	if seen[name] {
		return f.fail(name, m.Name.StartOffset, "given twice in the file")
	}
	seen[name] = true
	raw, ok := rawValue(e.kind, m.Value)
	if !ok {
		return f.fail(name, m.Value.StartOffset, "found %s, expected %s", found(m.Value), kindNames[e.kind])
	}
	if e.source == fromArgs {
		return nil
	}
	e.raw, e.source = raw, fromFile
	return nil
}

// rawValue is the text of a JSON value of the wanted type, as the command line
// would give it.
func rawValue(k kind, v hujson.Value) (string, bool) {
	lit, ok := v.Value.(hujson.Literal)
	if !ok {
		return "", false
	}
	switch {
	case k == integer && lit.Kind() == '0':
		_, err := strconv.ParseInt(string(lit), 10, strconv.IntSize)
		return string(lit), err == nil
	case k == text && lit.Kind() == '"':
		return lit.String(), true
	case k == toggle && (lit.Kind() == 't' || lit.Kind() == 'f'):
		return string(lit), true
	}
	return "", false
}

// found describes a JSON value for a message.
func found(v hujson.Value) string {
	switch v := v.Value.(type) {
	case *hujson.Object:
		return "an object"
	case *hujson.Array:
		return "a list"
	case hujson.Literal:
		return string(v)
	}
	return "nothing"
}

// suggestKey says which keys a section may hold, or which one was meant.
func (p *Parser) suggestKey(name string, general bool) string {
	var names []string
	for _, e := range p.entries {
		if e.general != general || general && e.kind == toggle || e.parameters {
			continue
		}
		names = append(names, e.Long)
	}
	if n := nearest.Name(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	if len(names) == 0 {
		return "this section takes none"
	}
	return "expected one of " + strings.Join(names, ", ")
}
