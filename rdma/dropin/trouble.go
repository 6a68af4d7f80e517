package dropin

import (
	"fmt"
	"strconv"
	"strings"
)

// Trouble is what GORUN_VERBS_ADVERSE and gorun-verbs --adverse ask for: a device on which everything goes as badly as it may.
type Trouble struct {
	Seed                 uint64 // of all choices
	Limits, Link, Errors bool
}

// TroubleForm says how Trouble is written. SEED alone: what a correct program does not notice.
const TroubleForm = "SEED[,limits][,link][,errors]"

// ParseTrouble reads Trouble; nil for no text.
func ParseTrouble(text string) (*Trouble, error) {
	if text == "" {
		return nil, nil
	}
	seed, rest, more := strings.Cut(text, ",")
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("found %q, expected %s: SEED is a number", text, TroubleForm)
	}
	t := &Trouble{Seed: n}
	kinds := map[string]*bool{"limits": &t.Limits, "link": &t.Link, "errors": &t.Errors}
	for more {
		var kind string
		kind, rest, more = strings.Cut(rest, ",")
		if kinds[kind] == nil {
			return nil, fmt.Errorf("found %q, expected %s", kind, TroubleForm)
		}
		*kinds[kind] = true
	}
	return t, nil
}
