//go:build linux

package rxevm

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// needs are the programs that must be on the host, most of them because
// the guest gets a copy, with Debian's packages.
var needs = []struct {
	program, pkg string
	guest        bool
}{
	{"qemu-system-x86_64", "qemu-system-x86", false},
	{"apt-get", "apt", false},
	{"dpkg", "dpkg", false},
	{"xz", "xz-utils", false},
	{"busybox", "busybox-static", true},
	{"dash", "dash", true},
	{"ip", "iproute2", true},
	{"rdma", "iproute2", true},
	{"ibv_devices", "ibverbs-utils", true},
	{"ibv_devinfo", "ibverbs-utils", true},
	{"ibv_rc_pingpong", "ibverbs-utils", true},
	{"ibv_uc_pingpong", "ibverbs-utils", true},
	{"ibv_ud_pingpong", "ibverbs-utils", true},
	{"ibv_srq_pingpong", "ibverbs-utils", true},
	{"ib_write_lat", "perftest", true},
	{"ib_write_bw", "perftest", true},
	{"ib_read_lat", "perftest", true},
	{"ib_send_lat", "perftest", true},
	{"ib_atomic_lat", "perftest", true},
	{"rping", "rdmacm-utils", true},
}

// libraryFiles are what programs load at run time, by patterns, with their packages.
var libraryFiles = []struct{ pattern, pkg string }{
	{"/etc/libibverbs.d/rxe.driver", "ibverbs-providers"},
	{"/usr/lib/*/libibverbs/librxe-rdmav*.so", "ibverbs-providers"},
	{"/usr/lib/*/libmlx5.so.1", "ibverbs-providers"},
	{"/usr/lib/*/libibverbs.so.1", "libibverbs1"},
	{"/usr/lib/*/librdmacm.so.1", "librdmacm1"},
	{"/lib/x86_64-linux-gnu/libgcc_s.so.1", "libgcc-s1"},
}

// Packages lists Debian's packages that are missing for Boot.
func Packages() []string {
	_, packages := missing()
	return packages
}

// missing lists what is not there, and the packages that have it.
func missing() (names, packages []string) {
	miss := func(name, pkg string) {
		names = append(names, name)
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	for _, n := range needs {
		if _, err := exec.LookPath(n.program); err != nil {
			miss(n.program, n.pkg)
		}
	}
	for _, l := range libraryFiles {
		if found, _ := filepath.Glob(l.pattern); found == nil {
			miss(l.pattern, l.pkg)
		}
	}
	return names, packages
}

// installed tells what is missing and how to get it.
func installed() error {
	names, packages := missing()
	if names == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; to have them: sudo apt-get install %s", ErrMissing, strings.Join(names, ", "), strings.Join(packages, " "))
}

// small are files of the guest that are not on the host, or not meant for it.
var small = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nsshd:x:100:65534::/run/sshd:/bin/false\n",
	"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost guest\n::1 localhost\n10.7.0.1 rxe0 guest1\n10.7.0.2 guest2\n10.7.1.1 rxe1\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// writeInitrd writes the guest's first file system: this program as its init,
// the kernel's modules, and the programs and libraries of the tables above.
// It tells the paths that the guest then has.
func (k *kernel) writeInitrd(w io.Writer) (map[string]bool, error) {
	a := newArchive(w)
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/root", "/tmp", "/var/tmp"} {
		a.dir(dir)
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		a.link(dir, "usr"+dir)
	}
	a.link("/usr/bin/sh", "dash") // busybox's shell takes its own ip for iproute2's
	for name, text := range small {
		a.file(name, []byte(text))
	}
	for i, m := range k.modules {
		a.file(fmt.Sprintf("/modules/%03d.ko", i), m)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := a.host(self, "/init"); err != nil {
		return nil, err
	}
	for _, n := range needs {
		if !n.guest {
			continue
		}
		file, err := exec.LookPath(n.program)
		if err != nil {
			return nil, err
		}
		if err := a.host(file, "/usr/bin/"+n.program); err != nil {
			return nil, err
		}
	}
	for _, l := range libraryFiles {
		found, err := filepath.Glob(l.pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			to, err := placed(file)
			if err != nil {
				return nil, err
			}
			if err := a.host(file, to); err != nil {
				return nil, err
			}
		}
	}
	applets, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	for _, name := range strings.Fields(string(applets)) {
		a.link("/usr/bin/"+name, "busybox") // unless the host's own program is there
	}
	return a.done, a.close()
}

// host adds a file of the host, and the libraries that it needs.
func (a *archive) host(file, to string) error {
	if a.done[to] {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	a.file(to, data)
	libs, err := libraries(file, data)
	if err != nil {
		return err
	}
	for _, lib := range libs {
		to, err := placed(lib)
		if err != nil {
			return err
		}
		if err := a.host(lib, to); err != nil {
			return err
		}
	}
	return nil
}
