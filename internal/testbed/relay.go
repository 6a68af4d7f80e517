package testbed

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A Relay carries the packets between hosts, each some time later, and so in another order.
type Relay struct {
	Carried, Overtaken atomic.Int64 // packets; those that came after one that was sent later

	mu      sync.Mutex
	random  *rand.Rand
	doors   map[netip.Addr]*door
	over    bool
	pending sync.WaitGroup // packets on their way, and readers
}

// A door is a host's end of the relay.
type door struct {
	tun  *os.File
	sent int64 // packets to it so far; with the relay's mu
	last atomic.Int64
}

// packetMost is the size of the largest packet.
const packetMost = 64 << 10

// Slow has all packets of IPv4 between the hosts take delay longer, and up to jitter more by chance, from now on: they go through a
// TUN device of each host to this process, which hands them to the other one's.
func (b *Bed) Slow(delay, jitter time.Duration) *Relay {
	b.t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		testenv.Unsupported(b.t, "this machine has no TUN devices: "+err.Error())
	}
	seed := uint64(time.Now().UnixNano())
	b.t.Logf("the relay's seed is %d", seed)
	r := &Relay{random: rand.New(rand.NewPCG(seed, 0)), doors: map[netip.Addr]*door{}}
	for _, h := range b.Hosts {
		tun, err := h.tun()
		if err != nil {
			b.t.Fatalf("a TUN device of %s: %v", h.Name, err)
		}
		r.doors[netip.MustParseAddr(h.Addr)] = &door{tun: tun}
	}
	b.t.Cleanup(r.close)
	for _, h := range b.Hosts {
		script := "ip link set slow0 up\n"
		for _, to := range b.Hosts {
			if to != h {
				script += fmt.Sprintf("ip route add %s/32 dev slow0 src %s\n", to.Addr, h.Addr)
			}
		}
		if out, err := h.Command(b.t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
			b.t.Fatalf("routes of %s: %v\n%s", h.Name, err, out)
		}
	}
	for _, d := range r.doors {
		r.pending.Go(func() { r.carry(d, delay, jitter) })
	}
	return r
}

// tun makes a TUN device in the host's network.
func (h *Host) tun() (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread()
		f, err := func() (*os.File, error) {
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return nil, err
			}
			defer own.Close()
			space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.pid))
			if err != nil {
				return nil, err
			}
			defer space.Close()
			if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
				return nil, os.NewSyscallError("setns", err)
			}
			// A thread that does not come back stays locked and ends with this goroutine; but
			// the process's first thread cannot end, and would keep the network for ever.
			defer func() {
				if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
					runtime.UnlockOSThread()
				}
			}()
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return nil, os.NewSyscallError("open", err)
			}
			request, err := unix.NewIfreq("slow0")
			if err == nil {
				request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
				err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
			}
			if err != nil {
				unix.Close(fd)
				return nil, os.NewSyscallError("TUNSETIFF", err)
			}
			return os.NewFile(uintptr(fd), "slow0 of "+h.Name), nil
		}()
		made <- result{f, err}
	}()
	m := <-made
	return m.f, m.err
}

// carry takes what a host sends.
func (r *Relay) carry(from *door, delay, jitter time.Duration) {
	buf := make([]byte, packetMost)
	for {
		n, err := from.tun.Read(buf)
		if err != nil {
			return // it is closed
		}
		if n < 20 || buf[0]>>4 != 4 {
			continue // IPv6's own
		}
		to := r.doors[netip.AddrFrom4([4]byte(buf[16:20]))]
		if to == nil {
			continue
		}
		packet := append([]byte(nil), buf[:n]...)
		r.mu.Lock()
		if r.over {
			r.mu.Unlock()
			return
		}
		to.sent++
		number, wait := to.sent, delay+time.Duration(r.random.Int64N(int64(jitter)+1))
		r.pending.Add(1)
		r.mu.Unlock()
		time.AfterFunc(wait, func() {
			defer r.pending.Done()
			if to.last.Swap(number) > number {
				r.Overtaken.Add(1)
			}
			if _, err := to.tun.Write(packet); err == nil {
				r.Carried.Add(1)
			}
		})
	}
}

// close ends the relay when the packets that are on their way have come.
func (r *Relay) close() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	for _, d := range r.doors {
		_ = d.tun.SetReadDeadline(time.Unix(1, 0))
	}
	r.pending.Wait()
	for _, d := range r.doors {
		_ = d.tun.Close()
	}
}
