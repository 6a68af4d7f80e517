package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// fixed are the ports and the address that scripts write as the documents and a user do. Two runs of the tests on one machine
// would meet there, and so would the connections that the kernel gives ports of its own choice.
var fixed = regexp.MustCompile(`\b(3[456]001|21[12][0-9]{2}|127\.0\.12\.25)\b`)

// ownPorts gives a copy of a folder's scripts in which they are free ones, the same in all scripts.
func ownPorts(t *testing.T, dir string) string {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	own, copies := map[string]string{}, t.TempDir()
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = fixed.ReplaceAllFunc(text, func(b []byte) []byte {
			if own[string(b)] == "" {
				own[string(b)] = instead(t, string(b))
			}
			return []byte(own[string(b)])
		})
		if err := os.WriteFile(filepath.Join(copies, filepath.Base(name)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return copies
}

// instead is what takes the place of a port or of the address.
func instead(t *testing.T, of string) string {
	t.Helper()
	if net.ParseIP(of) != nil {
		return fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250))
	}
	for range 1000 {
		port := fmt.Sprint(10000 + rand.N(20000)) // beneath those that the kernel chooses from
		if fixed.MatchString(port) {
			continue
		}
		if l, err := net.Listen("tcp", ":"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("found no free port of a thousand from 10000 to 29999, expected one")
	return ""
}

func TestScriptsHaveTheirOwnPorts(t *testing.T) {
	dir := t.TempDir()
	const said = "allreduce -t 34001 -a localhost:35001,localhost:34001 -s 340010\npingpong 127.0.12.25\n"
	if err := os.WriteFile(filepath.Join(dir, "a.txtar"), []byte(said), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(ownPorts(t, dir), "a.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`^allreduce -t ([0-9]{5}) -a localhost:([0-9]{5}),localhost:([0-9]{5}) -s 340010\npingpong 127\.[0-9.]+\n$`).FindSubmatch(text)
	if m == nil || string(m[1]) != string(m[3]) || string(m[1]) == string(m[2]) || fixed.Match(text) {
		t.Errorf("found\n%s\nexpected other ports and another address in\n%s", text, said)
	}
}
