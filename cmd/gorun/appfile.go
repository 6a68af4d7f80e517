package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// maxFile is how much of a file that an option names is read.
const maxFile = 16 << 20

// read reads a file that an option names.
func (s *settings) read(name string) (string, error) {
	if s.readFile == nil {
		return "", fmt.Errorf("found %q, expected no file: none can be read here", name)
	}
	text, err := s.readFile(name)
	if err != nil {
		if p, ok := errors.AsType[*os.PathError](err); ok {
			err = p.Err
		}
		return "", fmt.Errorf("found %q, expected a file that can be read: %w", name, err)
	}
	if len(text) > maxFile {
		return "", fmt.Errorf("found %q of %d bytes, expected %d at most", name, len(text), maxFile)
	}
	return strings.TrimPrefix(string(text), "\ufeff"), nil // editors of Windows begin a file with this mark
}

// readApps reads the programs of --app or -configfile: a program a line, with
// its options before it. Comments begin with '#'; a line that ends in '\' goes
// on in the next; a ':' in a line separates programs as on the command line.
func (r *reader) readApps(name string, argv []string) error {
	option := r.s.spelling
	p := r.s.program
	switch {
	case r.file:
		return fmt.Errorf("found a file of programs, %s, named in another, expected programs", name)
	case len(argv) > 0:
		return fmt.Errorf("found the program %s beside the file of programs %s, expected one of them", argv[0], name)
	case p.said != "":
		return fmt.Errorf("found %s beside the file of programs %s, expected it in the file, before the program that it is for", p.said, name)
	}
	before := len(r.s.programs)
	if err := r.readLines(option, name); err != nil {
		return err
	}
	if len(r.s.programs) == before && r.s.action == runProgram {
		return fmt.Errorf("%s: found no program, expected one a line; try: -n 2 ./a arguments", name)
	}
	return nil
}

// readLines reads a file of command lines.
func (r *reader) readLines(option, name string) error {
	text, err := r.s.read(name)
	if err != nil {
		return &refusal{option, err}
	}
	r.file = true
	defer func() { r.file = false }()
	number, start := 0, 1
	var words []string
	for line := range strings.Lines(text) {
		number++
		body, goesOn := strings.CutSuffix(strings.TrimRight(line, " \t\r\n"), `\`)
		more, err := split(body)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if words = append(words, more...); goesOn {
			continue
		}
		if len(words) > 0 {
			// Hydra's files may end a line with the ':' that stands for its end.
			if words[len(words)-1] == ":" {
				words = words[:len(words)-1]
			}
			if err := r.command(words); err != nil {
				return fmt.Errorf("%s:%d: %w", name, start, err)
			}
		}
		words, start = nil, number+1
	}
	if len(words) > 0 {
		if err := r.command(words); err != nil {
			return fmt.Errorf("%s:%d: %w", name, start, err)
		}
	}
	return nil
}

// split takes a line apart as a shell would that knows quotes, backslashes and
// comments and nothing else.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			if quote == '"' && c != '"' && c != '\\' {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case c == '#' && !inWord:
			return words, nil
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("found an opening %c, expected a closing one in the same line", quote)
	case escaped:
		word.WriteByte('\\')
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
