package rxevm

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// guestWord is the last argument of the program that is to be the guest's init;
// the kernel's command line gives it.
const guestWord = "gorun-rxevm-guest"

const portName = "gorun"

// Init makes a process that the guest's kernel has started as its first one
// the guest's init, which never returns; in every other process it does
// nothing. A program that calls Boot, a test's TestMain included, calls it
// first: the guest runs a copy of the program.
func Init() {
	switch {
	case os.Args[len(os.Args)-1] != guestWord:
	case os.Getpid() == 1:
		reap()
	default:
		os.Exit(agent())
	}
}

// reap is PID 1: it starts the agent and waits for everybody, since the dead that
// nobody waits for would be seen as living by tests that look for leftovers.
// When the agent ends the machine does.
func reap() {
	must := func(err error) {
		if err != nil {
			fmt.Println("rxevm: init:", err)
			halt()
		}
	}
	must(mountAll())
	must(os.Setenv("PATH", "/run/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"))
	must(os.Setenv("HOME", "/root"))
	agent, err := os.StartProcess("/init", []string{"/init", guestWord}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}})
	must(err)
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if pid == agent.Pid || err != nil && !errors.Is(err, syscall.EINTR) {
			halt()
		}
	}
}

// halt ends the machine: QEMU ends where a machine would boot again.
func halt() {
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
	select {}
}

func mountAll() error {
	for _, m := range []struct{ kind, dir, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.kind, m.dir, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

// agent does what the host asks for, until the host is gone.
func agent() int {
	if err := loadModules(); err != nil {
		fmt.Println("rxevm:", err)
		return 1
	}
	port, err := openPort()
	if err != nil {
		fmt.Println("rxevm: the port to the host:", err)
		return 1
	}
	out := newSender(port)
	if err := configure(); err != nil {
		fmt.Println("rxevm:", err)
		_ = out.send(frame{Failed: err.Error()})
		return 1
	}
	if err := out.send(frame{Ready: true}); err != nil {
		fmt.Println("rxevm:", err)
		return 1
	}
	if err := serve(gob.NewDecoder(port), out); !errors.Is(err, io.EOF) {
		fmt.Println("rxevm:", err)
		return 1
	}
	return 0
}

func loadModules() error {
	list, err := filepath.Glob("/modules/*") // sorted, and so named
	if err != nil {
		return err
	}
	for _, name := range list {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return os.RemoveAll("/modules")
}

// openPort finds the virtio-serial port that is named for us. Its device comes
// up behind the module's back.
func openPort() (*os.File, error) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if name, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(name)) == portName {
				return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(n)), os.O_RDWR, 0)
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("none of %q is called %s", names, portName)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// setup makes the devices: of a guest of a pair rxe0 on the cable to the other one, else two ends of
// a cable, each with a Soft-RoCE device that also reaches itself. A frame of 4096 bytes and its headers fit the MTU.
const setup = `
echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
	number=$(cat /sys/class/net/eth0/address)
	number=${number##*:0}
	hostname guest$number
	ip address add 10.7.0.$number/24 dev eth0
	ip link set eth0 up
	rdma link add rxe0 type rxe netdev eth0
	exit
fi
ip link add eth0 address 02:00:00:07:00:01 mtu 4200 type veth peer name eth1 address 02:00:00:07:01:01 mtu 4200
for i in 0 1; do
	ip address add 10.7.$i.1/24 dev eth$i
	ip link set eth$i up
done
for i in 0 1; do rdma link add rxe$i type rxe netdev eth$i; done
hostname guest
`

func configure() error {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return fmt.Errorf("ulimit -l unlimited: %w", err)
	}
	if out, err := exec.Command("sh", "-ec", setup).CombinedOutput(); err != nil {
		return fmt.Errorf("make the devices: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// serve takes the host's frames until it fails, at the stream's end with io.EOF. One command runs at a time.
func serve(in *gob.Decoder, out *sender) error {
	stop := make(chan struct{}, 1)
	for {
		var f frame
		if err := in.Decode(&f); err != nil {
			return err
		}
		switch {
		case f.File != nil:
			if err := f.File.write(); err != nil {
				return err
			}
		case f.Stop:
			select {
			case stop <- struct{}{}:
			default:
			}
		case f.Run != nil:
			stop = make(chan struct{}, 1)
			go func(stop chan struct{}) {
				d := f.Run.run(out, stop)
				if err := out.send(frame{Done: &d}); err != nil {
					fmt.Println("rxevm:", err)
				}
			}(stop)
		}
	}
}

func (f *file) write() error {
	if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
		return err
	}
	if f.First {
		if err := os.RemoveAll(f.Name); err != nil {
			return err
		}
	}
	if f.Link != "" {
		return os.Symlink(f.Link, f.Name)
	}
	w, err := os.OpenFile(f.Name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, os.FileMode(f.Mode))
	if err != nil {
		return err
	}
	if _, err := w.Write(f.Data); err != nil {
		w.Close()
		return err
	}
	return w.Close()
}

// stackGrace is how long a program that was told to stop has for its stacks.
const stackGrace = 5 * time.Second

// run runs a command and everything that it starts; what lives when it ends is
// named and killed. A command that is stopped gets SIGQUIT, for which a Go
// program prints its stacks, and then SIGKILL with all others.
func (c *command) run(out *sender, stop <-chan struct{}) done {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = append(cmd.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var copies sync.WaitGroup
	var ours []*os.File
	for _, stream := range []struct {
		to   *io.Writer
		wrap func([]byte) frame
	}{
		{&cmd.Stdout, func(b []byte) frame { return frame{Stdout: b} }},
		{&cmd.Stderr, func(b []byte) frame { return frame{Stderr: b} }},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			return done{Err: err.Error()}
		}
		*stream.to = w
		ours = append(ours, w)
		copies.Go(func() {
			defer r.Close()
			buf := make([]byte, chunk)
			for {
				n, err := r.Read(buf)
				if n > 0 && out.send(stream.wrap(buf[:n])) != nil || err != nil {
					return
				}
			}
		})
	}
	err := cmd.Start()
	for _, w := range ours {
		w.Close()
	}
	if err != nil {
		return done{Err: err.Error()}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	select {
	case <-ended:
	case <-stop:
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT)
		select {
		case <-ended:
		case <-time.After(stackGrace):
		}
	}
	var d done
	d.Left, d.Stuck = killAll(cmd.Process.Pid)
	if len(d.Stuck) == 0 {
		<-ended
		copies.Wait()
		d.Status = int(cmd.ProcessState.Sys().(syscall.WaitStatus))
	}
	return d
}

// killAll kills every process but init and the agent. It names those that
// lived, the command itself excepted, and those that do not die: the kernel is
// at fault then, and the machine of no more use.
func killAll(command int) (left, stuck []string) {
	for _, p := range processes() {
		if p.pid != command {
			left = append(left, p.name)
		}
	}
	_ = syscall.Kill(-1, syscall.SIGKILL)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		alive := processes()
		if len(alive) == 0 {
			return left, nil
		}
		if time.Now().After(deadline) {
			for _, p := range alive {
				stuck = append(stuck, p.name)
			}
			return left, stuck
		}
	}
}

type process struct {
	pid  int
	name string
}

// processes lists what lives besides init, the agent and the kernel's threads.
func processes() []process {
	var list []process
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		const kthreadd = 2
		s, ok := proc.Read(name)
		if !ok || s.Ended() || s.PID == 1 || s.PID == os.Getpid() || s.PID == kthreadd || s.Parent == kthreadd {
			continue
		}
		list = append(list, process{s.PID, fmt.Sprintf("%s (%d, %c)", s.Name, s.PID, s.State)})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].pid < list[j].pid })
	return list
}
