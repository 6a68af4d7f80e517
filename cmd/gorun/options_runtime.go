package main

import (
	"fmt"
	"strconv"
	"strings"
)

// runtimeOptions is Open MPI 5's option that holds a list of others.
func runtimeOptions() []option {
	return []option{
		{names: []string{"runtime-options"}, more: []string{"rtos"}, arity: 1, family: "Open MPI", value: "WORD[=VALUE],...",
			words: []string{"donotlaunch", "show-progress", "continuous", "max-restarts=", "timeout=", "report-state-on-timeout", "get-stack-traces"},
			help:  "several options in one list: donotlaunch, show-progress, continuous, max-restarts=N, timeout=TIME ...", set: setRuntimeOptions},
	}
}

// Its words that are not the names of the options they stand for.
var runtimeWords = map[string]string{
	"donotlaunch":  "do-not-launch",
	"notifyerrors": "report-events",
	"recoverable":  "enable-recovery",
	"autorestart":  "max-restarts",
}

// setRuntimeOptions does with each word what its option does: sets, notes or
// refuses it.
func setRuntimeOptions(s *settings, value string) error {
	table, whole := optionsUnder(s.under), s.spelling
	defer func() { s.spelling = whole }()
	for item := range strings.SplitSeq(value, ",") {
		word, text, given := strings.Cut(item, "=")
		word = strings.ToLower(word)
		if s.spelling = whole + " " + word; word == "error-nonzero-status" || word == "aggregate-help" {
			if err := s.always(word, text); err != nil {
				return err
			}
			continue
		}
		name := word
		if runtimeWords[word] != "" {
			name = runtimeWords[word]
		}
		o := longOption(table, name)
		switch {
		case o == nil || o.names[0] == "runtime-options":
			return unfit(item, "donotlaunch, show-progress, continuous, max-restarts=N, timeout=TIME, report-state-on-timeout, get-stack-traces ...")
		case o.fate == refused:
			return fmt.Errorf("%s is not supported: %s", word, o.reason)
		case o.fate == noted:
			s.note(o.reason)
		case o.arity > 0 && !given:
			return fmt.Errorf("found %q, expected %s=%s", item, word, o.value)
		default:
			if err := o.set(s, text); err != nil {
				return fmt.Errorf("%s: %w", word, err)
			}
		}
	}
	return nil
}

// always takes a word for something that gorun does in any case.
func (s *settings) always(word, text string) error {
	if on, err := strconv.ParseBool(text); text != "" && (err != nil || !on) {
		return fmt.Errorf("%s=%s is not supported: gorun does so always", word, text)
	}
	s.note("gorun always does this")
	return nil
}
