package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/meet"
	"github.com/gorun-mpi/gorun/internal/mpilib"
	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// Here is the machine that this runs on. The caller sets Environ, Ranks, Beside,
// Version and PMIx.
func Here() *View {
	return &View{
		Root:        kernelFiles{os.DirFS("/")},
		UID:         os.Geteuid(),
		Now:         time.Now,
		Limit:       getLimit,
		Space:       getSpace,
		TryFile:     tryFile,
		TryGroup:    tryGroup,
		TryMemfd:    tryMemfd,
		TryReach:    tryReach,
		TryLoopback: tryLoopback,
		TryOpen:     tryOpen,
		Verbs:       getVerbs,
		Membarrier:  getMembarrier,
		Libraries:   func() []mpilib.Library { return mpilib.List(mpilib.Directories(os.Environ())) },
		ReadELF:     readELF,
		Run:         runProgram,
		Start:       startProgram,
		Hostname:    os.Hostname,
		IsOwn:       reach.This().Is,
		Resolve: func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		},
		Reverse: func(ctx context.Context, addr netip.Addr) ([]string, error) {
			return net.DefaultResolver.LookupAddr(ctx, addr.String())
		},
		Interfaces: getInterfaces,
	}
}

func readELF(file string) (mpilib.ELF, error) {
	f, err := os.Open(file)
	if err != nil {
		return mpilib.ELF{}, err
	}
	defer f.Close()
	return mpilib.Read(f), nil
}

// kernelFiles is the machine's file system. Opening a FIFO or a device would
// wait, so only what is a regular file is read.
type kernelFiles struct{ fs.FS }

var (
	_ fs.ReadFileFS = kernelFiles{}
	_ fs.ReadLinkFS = kernelFiles{}
)

// ReadFile reads a regular file, up to 16 MiB of it.
func (k kernelFiles) ReadFile(name string) ([]byte, error) {
	info, err := fs.Stat(k.FS, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 16<<20 {
		return nil, &fs.PathError{Op: "read", Path: "/" + name, Err: fs.ErrInvalid}
	}
	return fs.ReadFile(k.FS, name)
}

// ReadLink is where a symbolic link leads.
func (k kernelFiles) ReadLink(name string) (string, error) { return fs.ReadLink(k.FS, name) }

// Lstat does not follow a symbolic link.
func (k kernelFiles) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(k.FS, name) }

func getLimit(resource int) (soft, hard uint64, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return 0, 0, os.NewSyscallError("getrlimit", err)
	}
	return limit.Cur, limit.Max, nil
}

func getSpace(dir string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Space{}, os.NewSyscallError("statfs", err)
	}
	block := uint64(st.Bsize)
	return Space{Total: st.Blocks * block, Free: st.Bavail * block, NoExec: st.Flags&unix.ST_NOEXEC != 0}, nil
}

func tryFile(dir string) error {
	f, err := os.CreateTemp(dir, "gorun-info-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func tryGroup(dir string) error {
	made, err := os.MkdirTemp(dir, "gorun-info-")
	if err != nil {
		return err
	}
	return os.Remove(made)
}

// tryMemfd does what package shm does.
func tryMemfd() error {
	fd, err := unix.MemfdCreate("gorun-info", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("gorun-info", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<16); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	m, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	m[0] = 1
	return os.NewSyscallError("munmap", unix.Munmap(m))
}

func tryLoopback(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	// The kernel completes the connection; nobody needs to accept it.
	conn, err := (&net.Dialer{Timeout: answer}).DialContext(ctx, "tcp4", listener.Addr().String())
	if err != nil {
		return err
	}
	return conn.Close()
}

func tryOpen(name string) error { return unix.Access(name, unix.R_OK|unix.W_OK) }

// MEMBARRIER_CMD_QUERY (linux/membarrier.h).
const membarrierQuery = 0

func getMembarrier() (uint64, error) {
	commands, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("membarrier", errno)
	}
	return uint64(commands), nil
}

// spoke bounds what a program may say, and lastWords how long that may be on its way when the program has ended: the goroutine that
// reads it may get no CPU for a while, and processes that have left the program's group may hold the pipes.
const spoke, lastWords = 64 << 10, 5 * time.Second

func runProgram(ctx context.Context, argv ...string) (stdout, stderr string, err error) {
	var out, errs prefix
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	// Its children end with it.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = lastWords
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer in time (%w)", ctx.Err())
	}
	return out.String(), errs.String(), err
}

// startProgram is runProgram for one that is talked to.
func startProgram(ctx context.Context, argv ...string) (*Program, error) {
	var errs prefix
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &errs
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = lastWords
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Program{Stream: meet.Stream{In: in, Out: out}, Wait: func() (string, error) {
		err := cmd.Wait()
		return errs.String(), err
	}}, nil
}

// prefix keeps the beginning of what is written.
type prefix struct{ b bytes.Buffer }

func (p *prefix) Write(data []byte) (int, error) {
	p.b.Write(data[:min(len(data), spoke-p.b.Len())])
	return len(data), nil
}

func (p *prefix) String() string { return strings.ToValidUTF8(p.b.String(), "?") }

func getInterfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Interface
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		one := Interface{Name: i.Name}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				one.Addrs = append(one.Addrs, p.Addr().Unmap().WithZone(""))
			}
		}
		list = append(list, one)
	}
	return list, nil
}

func getVerbs() (int, error) {
	devices, err := verbs.New(verbs.Config{}).Devices()
	return len(devices), err
}
