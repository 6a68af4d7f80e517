package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/internal/pmix"
)

// relay carries bytes between ranks and libpmix, which the kernel does itself
// (splice) where it may: nothing but the first message is buffered here, a side that does not read
// makes the other wait, and the end of either direction is passed on as that.
//
// A connection reaches libpmix with its whole first message: libpmix reads that on the one
// thread that serves all, and waits for seconds when a part is missing. Connections without
// one are bounded: beyond it the one that has been silent for the longest is closed.
type relay struct {
	listener *net.TCPListener
	libpmix  string
	kernel   peer.Kernel

	mu     sync.Mutex
	silent []*net.TCPConn // the oldest first
	// Connections that are not silent, each with a channel that is closed when it has
	// ended or turned out to be silent.
	open map[*net.TCPConn]chan struct{}
	// Connections that libpmix has been given, by the process that they say they are, the oldest first.
	clients map[pmix.Proc][]*client
}

// client is a process that has begun to connect to libpmix.
type client struct {
	conn *net.TCPConn
	in   bool // libpmix has let it in
}

// connected has a channel for each connection that is open and not known to be of another namespace, which is closed when
// libpmix has read all that was sent on it. Later connections, of which a flood never lacks, are not in it.
func (r *relay) connected(namespace string) []chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := maps.Clone(r.open)
	for p, clients := range r.clients {
		if p.Space != namespace {
			for _, c := range clients {
				delete(open, c.conn)
			}
		}
	}
	return slices.Collect(maps.Values(open))
}

// enter notes that a connection is open and not silent, leave that this is over.
func (r *relay) enter(c *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[c] = make(chan struct{})
}

func (r *relay) leave(c *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended, ok := r.open[c]; ok {
		close(ended)
		delete(r.open, c)
	}
}

// silentMax is how many connections may be silent.
const silentMax = 1024

func newRelay(fd uintptr, libpmix string) (*relay, error) {
	file := os.NewFile(fd, "listener")
	defer file.Close() // FileListener has its own
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("descriptor %d listens at %s: want a TCP port", fd, l.Addr())
	}
	return &relay{listener: tcp, libpmix: libpmix, open: map[*net.TCPConn]chan struct{}{}, clients: map[pmix.Proc][]*client{}}, nil
}

// connection is one that somebody else has accepted.
func connection(fd uintptr) (*net.TCPConn, error) {
	file := os.NewFile(fd, "connection")
	defer file.Close() // FileConn has its own
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor %d is no TCP connection", fd)
	}
	return tcp, nil
}

// accept serves connections until that is impossible, which failed is told.
// Connections that are refused go to refused.
func (r *relay) accept(failed func(error), refused func(string)) {
	for {
		c, err := r.listener.AcceptTCP()
		switch {
		case err == nil:
			r.enter(c)
			go r.take(c, refused)
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			// Ranks that finalize give theirs back.
			time.Sleep(10 * time.Millisecond)
		case errors.Is(err, syscall.ECONNABORTED):
		default:
			failed(fmt.Errorf("accept a rank's connection: %w", err))
			return
		}
	}
}

// take serves a connection that has entered; refused is told if it cannot be.
func (r *relay) take(rank *net.TCPConn, refused func(string)) {
	defer r.leave(rank)
	if err := r.serve(rank); err != nil {
		refused(err.Error())
	}
}

// serve carries one connection to its end.
func (r *relay) serve(rank *net.TCPConn) error {
	defer rank.Close()
	if err := r.ours(rank.RemoteAddr(), rank.LocalAddr()); err != nil {
		return fmt.Errorf("a connection from %s is refused: %w", rank.RemoteAddr(), err)
	}
	greeting := r.greeting(rank)
	if greeting == nil {
		return nil
	}
	c, err := net.Dial("tcp", r.libpmix)
	if err != nil {
		return fmt.Errorf("libpmix's port: %w", err)
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	if p, ok := procOf(greeting); ok {
		defer r.seat(p, rank)()
	}
	if _, err := server.Write(greeting); err != nil {
		return fmt.Errorf("libpmix's port: %w", err)
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		carry(rank, server)
	}()
	carry(server, rank)
	<-back
	return nil
}

// greeting waits for the first message of a connection; nil if there never is one. It
// begins with a header (pmix_ptl_hdr_t of libpmix 2 to 7):
//
//	0     4    8                16
//	index tag  length           the rest, of that length
//
// in the machine's order of bytes.
func (r *relay) greeting(c *net.TCPConn) []byte {
	r.mu.Lock()
	if len(r.silent) >= silentMax {
		_ = r.silent[0].Close() // it leaves by itself
		r.silent = slices.Delete(r.silent, 0, 1)
	}
	r.silent = append(r.silent, c)
	r.mu.Unlock()
	text, err := r.readGreeting(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := slices.Index(r.silent, c); at >= 0 {
		r.silent = slices.Delete(r.silent, at, at+1)
	}
	if err != nil {
		return nil
	}
	return text
}

// procOf is the process that the client of a first message says it is; false: it is not of the form of libpmix 4 to 7, in
// which the name of the security module, its credential, and the kind of process stand before it:
//
//	name 0 | length of the credential, highest byte first | credential | kind | namespace 0 | rank, highest byte first
func procOf(greeting []byte) (pmix.Proc, bool) {
	_, rest, ok := bytes.Cut(greeting[min(greetingHeader, len(greeting)):], []byte{0})
	if !ok || len(rest) < 4 {
		return pmix.Proc{}, false
	}
	length := int(binary.BigEndian.Uint32(rest)) + 5
	if length > len(rest) {
		return pmix.Proc{}, false
	}
	name, rest, ok := bytes.Cut(rest[length:], []byte{0})
	if !ok || len(rest) < 4 {
		return pmix.Proc{}, false
	}
	return pmix.Proc{Space: string(name), Rank: binary.BigEndian.Uint32(rest)}, true
}

// seat notes who has begun to connect; the function that it gives notes that this is over.
func (r *relay) seat(p pmix.Proc, conn *net.TCPConn) (leave func()) {
	c := &client{conn: conn}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[p] = append(r.clients[p], c)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		list := slices.DeleteFunc(r.clients[p], func(other *client) bool { return other == c })
		if r.clients[p] = list; len(list) == 0 {
			delete(r.clients, p)
		}
	}
}

// second tells, of a process that libpmix has let in now, whether another that it let in before under the same name is
// connected still: it has not died without PMIx_Finalize, and this one is a child of it. The kernel knows that sooner than
// those who carry for it. Where nobody is known under that name it is said to be.
func (r *relay) second(p pmix.Proc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	second, entered := len(r.clients[p]) == 0, false
	for _, c := range r.clients[p] {
		switch {
		case c.in:
			second = second || established(c.conn)
		case !entered: // or another that connects at the same time: either is one more
			entered, c.in = true, true
		}
	}
	return second
}

// established tells whether both ends of a connection are open.
func established(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return failed == nil && err == nil && info.State == tcpEstablished
}

// tcpEstablished is TCP_ESTABLISHED of the kernel's tcp_states.h.
const tcpEstablished = 1

const (
	greetingHeader = 16
	// greetingMost is the longest rest that libpmix takes (PMIX_MAX_CRED_SIZE).
	greetingMost = 128 << 10
)

// readGreeting reads it. While it waits the connection does not count as open.
func (r *relay) readGreeting(c *net.TCPConn) (text []byte, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	waits, want := false, greetingHeader
	var part [4096]byte
	err = raw.Read(func(fd uintptr) bool {
		for len(text) < want {
			n, err := syscall.Read(int(fd), part[:min(len(part), want-len(text))])
			switch {
			case err == syscall.EINTR:
				continue
			case err == syscall.EAGAIN:
				if !waits {
					waits = true
					r.leave(c)
				}
				return false
			case err != nil || n == 0:
				failed = cmp.Or(err, io.ErrUnexpectedEOF)
				return true
			}
			if text = append(text, part[:n]...); len(text) == greetingHeader {
				length := binary.NativeEndian.Uint64(text[8:])
				if length > greetingMost {
					failed = fmt.Errorf("its first message has %d bytes", length)
					return true
				}
				want += int(length)
			}
		}
		return true
	})
	if waits {
		r.enter(c)
	}
	return text, errors.Join(err, failed)
}

// carry copies one direction to its end and passes the end on. What cannot be
// written any more ends the other direction too.
func carry(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EACCES) {
		// A filter of a container refuses splice: its first call, so nothing was taken.
		_, err = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	}
	if err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.CloseWrite()
}

// ours tells whether a rank's end of a connection belongs to this user.
func (r *relay) ours(rank, here net.Addr) error {
	client, ok := rank.(*net.TCPAddr)
	server, ok2 := here.(*net.TCPAddr)
	if !ok || !ok2 { // a connection of FileConn that was reset has no address
		return errors.New("its client has gone")
	}
	uid, err := r.kernel.Owner(client.AddrPort(), server.AddrPort())
	if err != nil {
		return fmt.Errorf("cannot see whose it is: %w", err)
	}
	if want := os.Geteuid(); uid != want {
		return fmt.Errorf("it belongs to user %d, this job to user %d", uid, want)
	}
	return nil
}
