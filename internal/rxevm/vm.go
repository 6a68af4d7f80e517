//go:build linux

package rxevm

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config describes a machine. The zero value is what tests want.
type Config struct {
	// Cache is the directory of kernels; empty: gorun/rxevm in the user's cache.
	Cache string
	// CPUs and Memory (MiB) of the guest; 0: 2 and 2048. Memory that the
	// guest does not touch costs nothing.
	CPUs, Memory int
	// BootTime bounds the boot; 0: two minutes. It takes 3 s on an idle machine.
	BootTime time.Duration
	// Append is added to the kernel's command line.
	Append string
	// Progress hears of what takes long, and, with Console, of every line
	// that the guest's kernel prints.
	Progress func(string)
	Console  bool

	cable *os.File // one end of a socket pair; nil: none
	mac   string
}

// A VM is a running guest. Its methods are not to be called at the same time;
// Close may be, from anywhere.
type VM struct {
	channel *os.File
	out     *sender
	frames  chan frame      // closed when the guest says no more
	broken  error           // why no more commands can run
	have    map[string]bool // the guest's libraries
	console console
	kill    func()
	ended   chan struct{} // closed when QEMU has ended
	readers sync.WaitGroup
}

// Errors that a caller may tell apart. The error around them has
// the last lines of the guest's console in its text.
var (
	// ErrMissing: programs that are needed are not installed; the error says which and how to get them.
	ErrMissing = errors.New("not installed")
	// ErrBoot: the guest did not come up.
	ErrBoot = errors.New("the guest did not boot")
	// ErrPanic: the guest's kernel panicked.
	ErrPanic = errors.New("the guest's kernel panicked")
	// ErrGone: QEMU or the guest ended under a command, without a panic.
	ErrGone = errors.New("the guest is gone")
	// ErrHang: a command did not end in its time. If the guest could kill it, the machine is good for more.
	ErrHang = errors.New("did not end in time")
)

// Boot starts a guest and waits until its devices are there.
func Boot(ctx context.Context, config Config) (*VM, error) {
	if config.Progress == nil {
		config.Progress = func(string) {}
	}
	if config.Cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		config.Cache = filepath.Join(dir, "gorun", "rxevm")
	}
	if err := installed(); err != nil {
		return nil, err
	}
	k, err := loadKernel(ctx, config.Cache, config.Progress)
	if err != nil {
		return nil, err
	}
	image, err := memFile("vmlinux", func(w io.Writer) error { _, err := w.Write(k.image); return err })
	if err != nil {
		return nil, err
	}
	defer image.Close()
	var inside map[string]bool
	initrd, err := memFile("initrd", func(w io.Writer) error { inside, err = k.writeInitrd(w); return err })
	if err != nil {
		return nil, err
	}
	defer initrd.Close()

	limit := or(config.BootTime, 2*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	for try := 1; ; try++ {
		vm, err := start(config, image, initrd)
		if err != nil {
			return nil, err
		}
		if err = vm.awaitReady(ctx); err == nil {
			vm.have = inside
			return vm, nil
		}
		said := vm.console.tail()
		vm.Close()
		if said == "" && ctx.Err() == nil && try < 3 {
			config.Progress(fmt.Sprintf("QEMU did not start, trying again: %v", err))
			continue
		}
		return nil, fmt.Errorf("%w: %w%s", ErrBoot, err, said)
	}
}

// BootPair starts two guests, guest1 and guest2, joined by a cable: 10.7.0.1 and 10.7.0.2, each
// with its own kernel and one device, rxe0. They know each other's names.
func BootPair(ctx context.Context, config Config) (pair [2]*VM, err error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return pair, os.NewSyscallError("socketpair", err)
	}
	cable := [2]*os.File{os.NewFile(uintptr(ends[0]), "cable"), os.NewFile(uintptr(ends[1]), "cable")}
	defer cable[1].Close() // when both QEMUs have theirs
	defer cable[0].Close()
	for i := range pair {
		config.cable, config.mac = cable[i], fmt.Sprintf("02:00:00:07:00:%02d", i+1)
		if pair[i], err = Boot(ctx, config); err != nil {
			if i > 0 {
				pair[0].Close()
			}
			return [2]*VM{}, fmt.Errorf("guest%d: %w", i+1, err)
		}
	}
	return pair, nil
}

func or[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// start starts QEMU. Nothing of it has a name in the file system: kernel and
// initramfs are memory, the channel is a socket pair.
func start(config Config, image, initrd *os.File) (*VM, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	// Non-blocking, so that Close unblocks a reader.
	if err := syscall.SetNonblock(ends[0], true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "guest"), os.NewFile(uintptr(ends[1]), "guest")
	defer theirs.Close()

	// The names of the inherited descriptors; the first one is 3.
	cmd := exec.Command("qemu-system-x86_64",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35",
		"-smp", fmt.Sprint(or(config.CPUs, 2)), "-m", fmt.Sprint(or(config.Memory, 2048)),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none", "-serial", "stdio",
		"-kernel", "/dev/fd/3", "-initrd", "/dev/fd/4",
		"-chardev", "socket,id=host,fd=5", "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=host,name="+portName,
		"-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr tsc=reliable random.trust_cpu=on nowatchdog rcupdate.rcu_cpu_stall_suppress=1 "+config.Append+" -- "+guestWord)
	cmd.ExtraFiles = []*os.File{image, initrd, theirs}
	if config.cable != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, config.cable)
		// A frame of 4096 bytes and its headers fit the MTU.
		cmd.Args = append(cmd.Args, "-netdev", "socket,id=cable,fd=6", "-device", "virtio-net-pci,netdev=cable,host_mtu=4200,mac="+config.mac)
	}
	dieWithUs(cmd)
	read, write, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, write
	vm := &VM{
		out: newSender(ours), channel: ours, frames: make(chan frame), ended: make(chan struct{}),
	}
	if config.Console {
		vm.console.hear = config.Progress
	}
	wait, err := startLocked(cmd)
	write.Close()
	if err != nil {
		read.Close()
		ours.Close()
		return nil, err
	}
	vm.kill = func() { _ = cmd.Process.Kill() }
	go func() {
		defer close(vm.ended)
		_ = wait()
	}()
	vm.readers.Go(func() { vm.console.read(read) })
	vm.readers.Go(func() {
		defer close(vm.frames)
		in := gob.NewDecoder(ours)
		for {
			var f frame
			if in.Decode(&f) != nil {
				return
			}
			select {
			case vm.frames <- f:
			case <-vm.ended:
				return
			}
		}
	})
	return vm, nil
}

// awaitReady waits for the guest's first frame.
func (vm *VM) awaitReady(ctx context.Context) error {
	select {
	case f, ok := <-vm.frames:
		switch {
		case f.Ready:
			return nil
		case ok:
			return errors.New(f.Failed)
		}
		return vm.why()
	case <-vm.ended:
		return vm.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// why says why QEMU has ended, or why the guest has closed its port, which
// it does when it ends.
func (vm *VM) why() error {
	vm.Close()
	if vm.console.panicked() {
		return ErrPanic
	}
	return ErrGone
}

// Err tells why the guest can run no more commands, if so.
func (vm *VM) Err() error { return vm.broken }

// Close ends the guest. It is not shut down: it has nothing to lose.
func (vm *VM) Close() {
	vm.kill()
	<-vm.ended
	vm.channel.Close()
	vm.readers.Wait()
}

// A console keeps what QEMU and the guest's kernel have printed last.
type console struct {
	hear func(string)

	mu    sync.Mutex
	lines []string
	panic bool
}

// consoleLines is how much of the console an error shows.
const consoleLines = 40

func (c *console) read(r *os.File) {
	defer r.Close()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			c.mu.Lock()
			c.panic = c.panic || strings.Contains(line, "Kernel panic - not syncing")
			if c.lines = append(c.lines, line); len(c.lines) > consoleLines {
				c.lines = c.lines[1:]
			}
			c.mu.Unlock()
			if c.hear != nil { // which may end the boot, and the error then shows the line
				c.hear(line)
			}
		}
		if err != nil {
			return
		}
	}
}

// tail is the last of the console, as the end of an error's text.
func (c *console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		return ""
	}
	return "\nconsole:\n\t" + strings.Join(c.lines, "\n\t")
}

func (c *console) panicked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panic
}
