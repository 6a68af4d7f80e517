//go:build linux

package rxevm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// modules are those that the guest loads, besides what they need themselves:
// the channel to the host, the network devices, the cable to another guest, and Soft-RoCE with the
// interfaces of libibverbs and librdmacm. Soft-RoCE asks for crc32 by name when
// a device is made, which no dependency tells.
var modules = []string{"virtio_pci", "virtio_console", "virtio_net", "veth", "crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe"}

// layout is part of the cache's key: it changes with what fetch makes of a package.
const layout = "3"

// kernelTime bounds the download of the package, about 70 MB.
const kernelTime = 4 * time.Minute

// A kernel is what the guest boots, out of the cache: read and checked, so that
// nobody else's work on the cache can spoil it.
type kernel struct {
	version string
	image   []byte
	modules [][]byte // in the order of loading
}

// manifest describes an entry of the cache. Its own file is written last, and
// names every other one with its SHA-256.
type manifest struct {
	Package string
	Modules []string // in the order of loading
	Sums    map[string]string
}

const imageName, manifestName = "vmlinux", "manifest.json"

// loadKernel gives Debian's newest kernel from the cache, and fetches it first
// if it is not there or not whole. Where apt cannot tell which one is newest,
// any that is there will do. progress hears of what takes long.
func loadKernel(ctx context.Context, cache string, progress func(string)) (*kernel, error) {
	if err := os.MkdirAll(cache, 0o777); err != nil {
		return nil, err
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return nil, fmt.Errorf("wait for another download: %w", err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, kernelTime, fmt.Errorf("no kernel within %v", kernelTime))
	defer cancel()

	pkg, err := newestPackage(ctx)
	if err != nil {
		old, _ := filepath.Glob(filepath.Join(cache, "*", manifestName))
		for _, m := range old {
			if k, e := readKernel(filepath.Dir(m)); e == nil {
				progress(fmt.Sprintf("%v; taking %s from %s", err, k.version, cache))
				return k, nil
			}
		}
		return nil, err
	}
	entry := filepath.Join(cache, strings.ReplaceAll(pkg, "=", "_")+"-"+layout)
	k, err := readKernel(entry)
	if err == nil {
		return k, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		progress(fmt.Sprintf("the cache is broken, fetching again: %v", err))
	}
	progress("fetching " + pkg + " through apt")
	if err := fetchKernel(ctx, cache, entry, pkg); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("fetch %s: %w", pkg, err)
	}
	return readKernel(entry)
}

// lockFile takes a lock that ends with the process at the latest. Others may hold it for
// as long as a download takes.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// readKernel reads an entry of the cache and checks it whole.
func readKernel(entry string) (*kernel, error) {
	data, err := os.ReadFile(filepath.Join(entry, manifestName))
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	read := func(name string) ([]byte, error) {
		data, err := os.ReadFile(filepath.Join(entry, name))
		if err != nil {
			return nil, errors.New(err.Error()) // not ErrNotExist, which means the whole entry
		}
		if sum(data) != m.Sums[name] {
			return nil, fmt.Errorf("%s: not what was written", filepath.Join(entry, name))
		}
		return data, nil
	}
	k := &kernel{version: m.Package}
	if k.image, err = read(imageName); err != nil {
		return nil, err
	}
	for _, name := range m.Modules {
		data, err := read(name)
		if err != nil {
			return nil, err
		}
		k.modules = append(k.modules, data)
	}
	return k, nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// newestPackage asks apt which kernel is Debian's newest: "package=version".
func newestPackage(ctx context.Context) (string, error) {
	out, err := apt(ctx, "", "apt-cache", "show", "--no-all-versions", "linux-image-amd64")
	if err != nil && os.Getuid() == 0 {
		// A machine without lists of packages, as container images are.
		if _, err = apt(ctx, "", "apt-get", "update"); err == nil {
			out, err = apt(ctx, "", "apt-cache", "show", "--no-all-versions", "linux-image-amd64")
		}
	}
	if err != nil {
		return "", fmt.Errorf("ask apt for Debian's kernel (is this Debian, and was `apt-get update` run?): %w", err)
	}
	return parsePackage(out)
}

var dependsOnImage = regexp.MustCompile(`(?m)^Depends: (linux-image-[^ ,]+)(?: \(= ([^)]+)\))?`)

// parsePackage reads what linux-image-amd64 depends on.
func parsePackage(show string) (string, error) {
	match := dependsOnImage.FindStringSubmatch(show)
	if match == nil {
		return "", errors.New("the package linux-image-amd64 depends on no kernel: is this Debian?")
	}
	if match[2] == "" {
		return match[1], nil
	}
	return match[1] + "=" + match[2], nil
}

// apt runs a command in a directory and gives its output.
func apt(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	dieWithUs(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := output(cmd)
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{name}, args...), " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// fetchKernel downloads a package and makes an entry of the cache of it, at
// once: others see it whole or not at all. Entries of other kernels and what
// killed downloads have left are removed. The caller holds the lock.
func fetchKernel(ctx context.Context, cache, entry, pkg string) error {
	others, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range others {
		if e.IsDir() {
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return err
			}
		}
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if _, err := apt(ctx, work, "apt-get", "download", pkg); err != nil {
		if os.Getuid() != 0 {
			return err
		}
		// Lists older than the mirror name versions that it no longer has.
		if _, err := apt(ctx, work, "apt-get", "update"); err != nil {
			return err
		}
		if _, err := apt(ctx, work, "apt-get", "download", pkg); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download left %d packages, not one", len(debs))
	}
	tree := filepath.Join(work, "tree")
	if _, err := apt(ctx, work, "dpkg", "-x", debs[0], tree); err != nil {
		return err
	}
	made := filepath.Join(work, "entry")
	if err := unpackKernel(tree, made, pkg); err != nil {
		return err
	}
	return os.Rename(made, entry)
}

// unpackKernel makes a directory with what the guest needs of an unpacked package.
func unpackKernel(tree, dir, pkg string) error {
	images, _ := filepath.Glob(filepath.Join(tree, "boot", "vmlinuz-*"))
	var roots []string
	for _, lib := range []string{"lib", "usr/lib"} {
		found, _ := filepath.Glob(filepath.Join(tree, lib, "modules", "*", "modules.builtin"))
		roots = append(roots, found...)
	}
	if len(images) != 1 || len(roots) != 1 {
		return fmt.Errorf("%s holds %d kernels and %d trees of modules, not one of each", pkg, len(images), len(roots))
	}
	packed, err := os.ReadFile(images[0])
	if err != nil {
		return err
	}
	image, err := unpackImage(packed)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(images[0]), err)
	}
	order, err := moduleOrder(filepath.Dir(roots[0]), modules)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	m := manifest{Package: pkg, Sums: make(map[string]string)}
	write := func(name string, data []byte) error {
		m.Sums[name] = sum(data)
		return os.WriteFile(filepath.Join(dir, name), data, 0o666)
	}
	if err := write(imageName, image); err != nil {
		return err
	}
	for _, file := range order {
		data, err := readPacked(file)
		if err != nil {
			return err
		}
		base, _, _ := strings.Cut(filepath.Base(file), ".ko")
		m.Modules = append(m.Modules, base+".ko")
		if err := write(base+".ko", data); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), text, 0o666)
}

// packers tell how data was compressed, and what unpacks it. All programs
// ignore what follows the data, as the kernel's own length does, except that
// xz must be told to.
var packers = []struct {
	magic  string
	unpack []string
}{
	{"\xfd7zXZ\x00", []string{"xz", "-dc", "--single-stream"}},
	{"\x28\xb5\x2f\xfd", []string{"zstd", "-dcq"}},
	{"\x1f\x8b", []string{"gzip", "-dcq"}},
}

// readPacked reads a file, unpacked.
func readPacked(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return unpack(data)
}

// unpack gives data as it was before it was compressed, if it was.
func unpack(data []byte) ([]byte, error) {
	for _, p := range packers {
		if bytes.HasPrefix(data, []byte(p.magic)) {
			cmd := exec.Command(p.unpack[0], p.unpack[1:]...)
			cmd.Stdin = bytes.NewReader(data)
			dieWithUs(cmd)
			out, err := output(cmd)
			return []byte(out), err
		}
	}
	return data, nil
}

// unpackImage takes the kernel proper out of a bzImage, whose boot protocol
// (Documentation/x86/boot.rst) says where it lies. QEMU can start both, but
// unpacking is slow under emulation: 2.5 s a boot.
func unpackImage(bz []byte) ([]byte, error) {
	const setupSects, magic, version, payloadOffset, payloadLength = 0x1f1, 0x202, 0x206, 0x248, 0x24c
	if len(bz) < 0x250 || string(bz[magic:magic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	if v := binary.LittleEndian.Uint16(bz[version:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %#x is too old, want 2.08", v)
	}
	sects := cmp.Or(int(bz[setupSects]), 4)
	start := (sects+1)*512 + int(binary.LittleEndian.Uint32(bz[payloadOffset:]))
	end := start + int(binary.LittleEndian.Uint32(bz[payloadLength:]))
	if start > end || end > len(bz) {
		return nil, io.ErrUnexpectedEOF
	}
	image, err := unpack(bz[start:end])
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(image, []byte("\x7fELF")) {
		return nil, errors.New("the kernel inside is compressed in a way that is not known here")
	}
	return image, nil
}

// output runs a program that ends with us, and gives what it prints.
func output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout = &out
	wait, err := startLocked(cmd)
	if err == nil {
		err = wait()
	}
	return out.String(), err
}
