package rank_test

import (
	"go/build"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startUp are the packages from elsewhere that a rank's own packages may import:
// each is linked into every rank and adds to the start of each. What is not here
// is slow to start (a logger 0.1 ms, memberlist 0.9), large, or both.
var startUp = []string{
	"bufio", "bytes", "cmp", "context", "crypto/hmac", "crypto/rand", "crypto/sha256", "crypto/sha512", "crypto/subtle",
	"encoding/binary", "encoding/hex", "errors", "fmt", "hash", "io", "io/fs", "maps", "math", "math/bits", "math/rand/v2",
	"net", "net/netip", "os", "os/signal", "path", "path/filepath", "reflect", "runtime", "runtime/debug", "slices", "sort", "strconv", "strings",
	"sync", "sync/atomic", "syscall", "time", "unicode", "unicode/utf8", "unique", "unsafe", "weak",
	"golang.org/x/sys/unix", "golang.org/x/sys/cpu", "github.com/vmihailenco/msgpack/v5",
}

// Ranks start lean. The files are read here, because what the go command says is
// cached without regard to other packages' imports.
func TestStartUpImports(t *testing.T) {
	const module = "github.com/gorun-mpi/gorun/"
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{module + "rank": ""}
	queue := []string{module + "rank"}
	for len(queue) > 0 {
		pkg := queue[0]
		queue = queue[1:]
		dir := filepath.Join(root, filepath.FromSlash(strings.TrimPrefix(pkg, module)))
		if _, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		}
		p, err := build.Default.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module) {
				if _, was := seen[imported]; !was {
					seen[imported] = pkg
					queue = append(queue, imported)
				}
			} else if !slices.Contains(startUp, imported) {
				t.Errorf("%s imports %q, which every rank would link and start with", pkg, imported)
			}
		}
	}
	for _, never := range []string{"launcher", "internal/gossip", "internal/testenv", "rdma/verbs"} {
		if by, found := seen[module+never]; found {
			t.Errorf("%s imports %s, which a rank must not link", by, never)
		}
	}
	if len(seen) < 8 {
		t.Errorf("only %d packages were looked at: %v", len(seen), seen)
	}
}
