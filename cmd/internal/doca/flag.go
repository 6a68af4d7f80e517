package doca

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Flag describes one option of a program.
type Flag struct {
	Long      string // without dashes; the key in a parameter file
	Short     byte   // 0: none
	Value     string // what the value is called in the usage: "BYTES"; ignored for switches
	Help      string
	Mandatory bool
	// Check, when not nil, is asked whether the value that was set is
	// acceptable. It is not called for a flag that was not given. Its error
	// reads "found 7, expected a multiple of 4".
	Check func() error
}

// kind is the type of a flag's values.
type kind int

const (
	integer kind = iota
	text
	toggle // a boolean, without value on the command line
)

var kindNames = map[kind]string{integer: "a whole number", text: "a string", toggle: "true or false"}

// entry is a declared flag and where its value goes.
type entry struct {
	Flag
	kind    kind
	general bool
	ask     error // what Parse returns when the switch is set: ErrHelp, ErrVersion
	// parameters marks the flag that names the parameter file.
	parameters bool
	set        func(raw string) error // raw is decimal for integers, "true" or "false" for toggles

	raw    string // the value that was given
	source source
}

// source says where a flag's value came from.
type source int

const (
	notGiven source = iota
	fromFile
	fromArgs
)

// name is the flag as messages name it: short as on the command line, long as
// in the file, both when it was given nowhere.
func (e *entry) name() string {
	switch {
	case e.source == fromFile:
		return e.Long
	case e.Short == 0:
		return "--" + e.Long
	case e.source == fromArgs:
		return "-" + string(e.Short)
	}
	return "-" + string(e.Short) + "/--" + e.Long
}

func setInt[T ~int | ~int64](dst *T) func(string) error {
	return func(raw string) error {
		n, err := strconv.ParseInt(raw, 10, strconv.IntSize)
		if err != nil {
			if errors.Is(err, strconv.ErrRange) {
				return fmt.Errorf("found %s, expected a whole number of at most %d bits", raw, strconv.IntSize)
			}
			return fmt.Errorf("found %q, expected a whole number", raw)
		}
		*dst = T(n)
		return nil
	}
}

func setString(dst *string) func(string) error {
	return func(raw string) error {
		*dst = raw
		return nil
	}
}

func setBool(dst *bool) func(string) error {
	return func(raw string) error {
		switch raw {
		case "true":
			*dst = true
		case "false":
			*dst = false
		default:
			return fmt.Errorf("found %q, expected true or false", raw)
		}
		return nil
	}
}

// Within makes a [Flag.Check] of a number that has a least and a most value.
func Within(n *int, least, most int) func() error {
	return func() error {
		if *n < least || *n > most {
			return fmt.Errorf("found %d, expected %d to %d", *n, least, most)
		}
		return nil
	}
}

// AtLeast makes a [Flag.Check] of a number that has a least value.
func AtLeast(n *int, least int) func() error {
	return func() error {
		if *n < least {
			return fmt.Errorf("found %d, expected %d or more", *n, least)
		}
		return nil
	}
}

// OneOf makes a [Flag.Check] of a text that is one of several words.
func OneOf(word *string, words ...string) func() error {
	return func() error {
		if slices.Contains(words, *word) {
			return nil
		}
		last := len(words) - 1
		expected := words[last]
		if last > 0 {
			expected = strings.Join(words[:last], ", ") + " or " + expected
		}
		return fmt.Errorf("found %q, expected %s", *word, expected)
	}
}
