package host

import (
	"fmt"
	"os"
	"testing"
)

func TestParseProcess(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194304 1 2 3 4 150 25 0 0 20 0 3 0 99"
	for text, want := range map[string]string{
		"42 (sh)" + rest:      "{42 42 sh S 3 175 false} true",
		"43 (a) b (c)" + rest: "{43 42 a) b (c S 3 175 false} true",
		"42 (sh) S 1 42":      "{0 0    0 false} false",
		"":                    "{0 0    0 false} false",
		"x (sh)" + rest:       "{0 42 sh S 3 175 false} false",
		"45 (sh) R 1 42 42 0 -1 4194308" + rest[len(" S 1 42 42 0 -1 4194304"):]: "{45 42 sh R 3 175 true} true", // on its way out
		"46 (sh) Z" + rest[2:]:   "{46 42 sh Z 3 175 true} true",
		"44 (two\nlines)" + rest: "{44 42 two\nlines S 3 175 false} true",
	} {
		p, ok := parseProcess(text)
		type plain process // without String
		if got := fmt.Sprint(plain(p), ok); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestIsGo(t *testing.T) {
	if !isGo(os.Getpid()) {
		t.Error("this test is no program of Go")
	}
	if isGo(1 << 30) {
		t.Error("a process that does not exist is one")
	}
}
