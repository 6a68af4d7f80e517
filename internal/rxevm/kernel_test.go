//go:build linux

package rxevm

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module makes the least ELF file that has a section .modinfo.
func module(info string) []byte {
	const header, entry = 64, 64
	names := "\x00.modinfo\x00.shstrtab\x00"
	le := binary.LittleEndian
	b := make([]byte, header+3*entry)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 1)      // ET_REL
	le.PutUint16(b[18:], 62)     // EM_X86_64
	le.PutUint32(b[20:], 1)      // version
	le.PutUint64(b[40:], header) // where the sections' entries are
	le.PutUint16(b[52:], header)
	le.PutUint16(b[58:], entry)
	le.PutUint16(b[60:], 3) // how many
	le.PutUint16(b[62:], 2) // which one has the names
	for i, s := range []struct {
		name, kind uint32
		data       string
	}{{1, 1, info}, {10, 3, names}} {
		at := b[header+(i+1)*entry:]
		le.PutUint32(at, s.name)
		le.PutUint32(at[4:], s.kind)
		le.PutUint64(at[24:], uint64(len(b)))
		le.PutUint64(at[32:], uint64(len(s.data)))
		b = append(b, s.data...)
	}
	return b
}

// bzImage makes the least one around a kernel.
func bzImage(t *testing.T, kernel string) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(kernel)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2*512+100) // one sector of set-up, and the payload 100 bytes into the rest
	b[0x1f1] = 1
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(b[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(b[0x248:], 100)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(packed.Len()))
	return append(b, packed.Bytes()...)
}

// debian plays apt and dpkg with a made-up kernel, in place of all programs in
// the PATH but the shell's.
type debian struct {
	t           *testing.T
	root, cache string
}

func newDebian(t *testing.T) *debian {
	t.Helper()
	d := &debian{t: t, root: t.TempDir(), cache: filepath.Join(t.TempDir(), "cache")}
	d.script("apt-cache", `echo "Package: linux-image-amd64"; echo "Depends: linux-image-1-amd64 (= 1.2)"`)
	d.script("apt-get", `echo "$@" >>`+d.root+`/log; [ "$1" = update ] || : >"$2.deb"`)
	d.script("dpkg", `cp -r `+d.root+`/tree "$3"`)
	t.Setenv("PATH", filepath.Join(d.root, "bin")+":"+os.Getenv("PATH"))

	d.file("tree/boot/vmlinuz-1", bzImage(t, "\x7fELF kernel"))
	tree := "tree/lib/modules/1/"
	d.file(tree+"modules.builtin", []byte("kernel/lib/crc32-generic.ko\nkernel/drivers/virtio/virtio.ko\n"))
	for name, depends := range map[string]string{
		"virtio_pci": "virtio", "virtio-console": "virtio", "virtio_net": "virtio", "veth": "", "ib_core": "",
		"ib_uverbs": "ib_core", "rdma_ucm": "ib_uverbs,ib_core", "rdma_rxe": "ib-uverbs,ib_core", "unwanted": "missing",
	} {
		d.file(tree+"kernel/"+name+".ko", module("license=GPL\x00depends="+depends+"\x00name="+name+"\x00"))
	}
	return d
}

func (d *debian) file(name string, data []byte) {
	d.t.Helper()
	name = filepath.Join(d.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o777); err != nil {
		d.t.Fatal(err)
	}
}

func (d *debian) script(name, body string) {
	d.file("bin/"+name, []byte("#!/bin/sh\nset -eu\n"+body+"\n"))
}

// downloads are the packages that apt-get was asked for.
func (d *debian) downloads() []string {
	d.t.Helper()
	log, err := os.ReadFile(filepath.Join(d.root, "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(log)) {
		if pkg, is := strings.CutPrefix(strings.TrimSpace(line), "download "); is {
			list = append(list, pkg)
		}
	}
	return list
}

// load loads the kernel, which must be the made-up one, and returns what the user was told.
func (d *debian) load() string {
	d.t.Helper()
	var told []string
	k, err := loadKernel(context.Background(), d.cache, func(s string) { told = append(told, s) })
	if err != nil {
		d.t.Fatal(err)
	}
	if string(k.image) != "\x7fELF kernel" || len(k.modules) != 8 || k.version != "linux-image-1-amd64=1.2" {
		d.t.Fatalf("kernel %s: image %q and %d modules", k.version, k.image, len(k.modules))
	}
	return strings.Join(told, "\n")
}

// entries are the directories of the cache.
func (d *debian) entries() []string {
	d.t.Helper()
	list, err := filepath.Glob(filepath.Join(d.cache, "*", "*"))
	if err != nil {
		d.t.Fatal(err)
	}
	var dirs []string
	for _, e := range list {
		if dir := filepath.Base(filepath.Dir(e)); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func TestKernelIsFetchedOnce(t *testing.T) {
	d := newDebian(t)
	if told := d.load(); told != "fetching linux-image-1-amd64=1.2 through apt" {
		t.Errorf("told %q", told)
	}
	if told := d.load(); told != "" {
		t.Errorf("the second time it told %q", told)
	}
	if got := d.downloads(); len(got) != 1 || got[0] != "linux-image-1-amd64=1.2" {
		t.Errorf("downloads: %q", got)
	}
}

func TestNewerKernelReplacesTheOld(t *testing.T) {
	d := newDebian(t)
	d.load()
	old := d.entries()
	d.script("apt-cache", `echo "Depends: linux-image-2-amd64 (= 2.0)"`)
	k, err := loadKernel(context.Background(), d.cache, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if now := d.entries(); k.version != "linux-image-2-amd64=2.0" || len(now) != 1 || now[0] == old[0] {
		t.Errorf("kernel %s; the cache had %q and has %q", k.version, old, now)
	}
}

func TestBrokenCacheIsMended(t *testing.T) {
	for name, spoil := range map[string]string{
		"cut off":          `: >%s/vmlinux`,
		"other bytes":      `printf '\177ELF Kernel' >%s/vmlinux`,
		"module gone":      `rm %s/veth.ko`,
		"manifest gone":    `rm %s/manifest.json`,
		"manifest cut off": `printf '{"Package":' >%s/manifest.json`,
		"empty":            `rm %s/*`,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDebian(t)
			d.load()
			entry := filepath.Join(d.cache, d.entries()[0])
			d.script("spoil", fmt.Sprintf(spoil, entry))
			if _, err := apt(context.Background(), "", "spoil"); err != nil {
				t.Fatal(err)
			}
			d.load()
			d.load()
			if got := d.downloads(); len(got) != 2 {
				t.Errorf("%d downloads, not the first one and one that mends: %q", len(got), got)
			}
		})
	}
}

func TestCacheServesWithoutApt(t *testing.T) {
	d := newDebian(t)
	d.load()
	d.script("apt-cache", `echo "E: no lists" >&2; exit 100`)
	d.script("apt-get", `echo "E: no network" >&2; exit 100`)
	if told := d.load(); !strings.Contains(told, "no network") && !strings.Contains(told, "no lists") {
		t.Errorf("told %q, without apt's reason", told)
	}
	if err := os.RemoveAll(d.cache); err != nil {
		t.Fatal(err)
	}
	if _, err := loadKernel(context.Background(), d.cache, func(string) {}); err == nil || !strings.Contains(err.Error(), "apt-get update") {
		t.Errorf("with nothing in the cache: %v", err)
	}
}

func TestManyLoadOneFetches(t *testing.T) {
	d := newDebian(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := loadKernel(context.Background(), d.cache, func(string) {}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := d.downloads(); len(got) != 1 {
		t.Errorf("%d downloads: %q", len(got), got)
	}
}

// What a fetch that was killed has left is gone after the next one.
func TestFailedFetchLeavesNothing(t *testing.T) {
	d := newDebian(t)
	if err := os.MkdirAll(filepath.Join(d.cache, "fetch-1", "tree"), 0o777); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(d.root, "bin", "dpkg")
	if err := os.Rename(good, good+".good"); err != nil {
		t.Fatal(err)
	}
	d.script("dpkg", `echo "dpkg: no space left" >&2; exit 2`)
	if _, err := loadKernel(context.Background(), d.cache, func(string) {}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("error %v, without dpkg's reason", err)
	}
	if left := d.entries(); left != nil {
		t.Errorf("left behind: %q", left)
	}
	if err := os.Rename(good+".good", good); err != nil {
		t.Fatal(err)
	}
	d.load()
}

func TestCancelledFetchEnds(t *testing.T) {
	d := newDebian(t)
	d.script("apt-get", `echo "$@" >>`+d.root+`/log; exec sleep 1000`)
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	_, err := loadKernel(ctx, d.cache, func(string) { cancel(why) }) // it tells that it fetches
	if !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	if left := d.entries(); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

func TestModuleOrder(t *testing.T) {
	d := newDebian(t)
	root := filepath.Join(d.root, "tree/lib/modules/1")
	for _, c := range []struct {
		want  []string
		order string
		err   string
	}{
		{[]string{"rdma_rxe", "ib_core"}, "ib_core ib_uverbs rdma_rxe", ""},
		{[]string{"virtio_console", "virtio_pci", "crc32_generic"}, "virtio-console virtio_pci", ""},
		{[]string{"unwanted"}, "", "module missing is not"},
		{[]string{"nosuch"}, "", "module nosuch is not"},
	} {
		files, err := moduleOrder(root, c.want)
		var order []string
		for _, f := range files {
			order = append(order, strings.TrimSuffix(filepath.Base(f), ".ko"))
		}
		if got := strings.Join(order, " "); c.err == "" && (got != c.order || err != nil) {
			t.Errorf("%q: %s, %v; want %s", c.want, got, err, c.order)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: error %v, want %q", c.want, err, c.err)
		}
	}
}

func TestUnpackImageRefuses(t *testing.T) {
	good := bzImage(t, "\x7fELF")
	edit := func(f func(b []byte)) []byte { b := bytes.Clone(good); f(b); return b }
	for name, c := range map[string]struct {
		image []byte
		want  string
	}{
		"nothing":        {nil, "not a bzImage"},
		"something else": {make([]byte, 4096), "not a bzImage"},
		"old":            {edit(func(b []byte) { b[0x206], b[0x207] = 7, 2 }), "too old"},
		"cut off":        {good[:len(good)-1], "unexpected EOF"},
		"length wraps":   {edit(func(b []byte) { copy(b[0x24c:], "\xff\xff\xff\xff") }), "unexpected EOF"},
		"unknown":        {edit(func(b []byte) { b[2*512+100] = 'L' }), "not known here"},
		"damaged":        {edit(func(b []byte) { b[len(b)-9] ^= 1 }), "exit status"},
		"no kernel":      {bzImage(t, "text"), "not known here"},
	} {
		if _, err := unpackImage(c.image); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
