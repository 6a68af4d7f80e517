package soft

import (
	"os"
	"sync"
	"syscall"
)

// mappings tells what of this process's address space is mapped.
type mappings struct {
	mu     sync.Mutex // guards what follows
	file   *os.File   // /proc/self/maps, opened when first asked
	silent bool       // the kernel does not answer questions about it
}

// check judges n bytes at addr: nil when they may be read, and written if write
// is set, else EFAULT, as pinning them would give. Nothing is touched.
//
// Linux 6.11 and later tell of mappings one by one (PROCMAP_QUERY,
// linux/fs.h). Earlier ones tell only by pages of text, which would take longer
// than many a transfer; there msync says whether all is mapped, and that it may
// not be written is found out by the request that does.
func (m *mappings) check(addr, n uint64, write bool) error {
	end := addr + n
	if end < addr || end > highestAddress {
		return syscall.EFAULT
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil && !m.silent {
		f, err := os.Open("/proc/self/maps")
		m.file, m.silent = f, err != nil
	}
	for at := addr; !m.silent; {
		v, err := queryMapping(m.file, at)
		switch {
		case err == syscall.ENOENT:
			return syscall.EFAULT
		case err != nil:
			m.silent = true
			continue
		case v.flags&mappingReadable == 0 || write && v.flags&mappingWritable == 0:
			return syscall.EFAULT
		case v.end >= end:
			return nil
		}
		at = v.end
	}
	return syncMapped(addr&^(pageSize-1), end)
}

func (m *mappings) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		m.file.Close()
		m.file, m.silent = nil, true
	}
}
