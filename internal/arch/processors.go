package arch

import (
	"runtime"
	"sync"
)

// processors guards GOMAXPROCS, which belongs to the whole process.
var processors sync.Mutex

// AddProcessors changes GOMAXPROCS by n. A thread that polls, and yields by system calls that
// Go's scheduler does not hear of, keeps one of its processors: its owner adds one for it, and
// takes it back when the thread has ended.
func AddProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)+n))
}
