package version

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The number is that of the last release in CHANGELOG.md.
func TestNumberIsTheLastRelease(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)$`).FindSubmatch(text)
	if m == nil || string(m[1]) != Number {
		t.Errorf("Number is %s, the first release in CHANGELOG.md %q", Number, m)
	}
}
