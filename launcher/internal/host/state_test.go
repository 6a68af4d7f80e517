package host

import (
	"os"
	"testing"
)

func TestIsGo(t *testing.T) {
	if !isGo(os.Getpid()) {
		t.Error("this test is no program of Go")
	}
	if isGo(1 << 30) {
		t.Error("a process that does not exist is one")
	}
}
