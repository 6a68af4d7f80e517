package pmi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of a client's calls.
var (
	ErrNotFound = errors.New("key not found") // Get: no rank has put the key before the last fence; Lookup: the service is not published
	ErrServer   = errors.New("server gone")   // the launcher closed the connection or died
	ErrRefused  = errors.New("refused")       // the server answered with an error
)

// answerTimeout bounds the first answers of a server and the last. A launcher
// answers at once or never, but 300 ranks that share two busy processors were
// seen to wait for more than 10 seconds.
const answerTimeout = time.Minute

// A Client is a rank's connection to its PMI server. One call runs at a
// time and others wait, except Abort and Close, which end a running call.
type Client struct {
	conn   conn
	name   string // of the server, for messages
	rank   int
	size   int
	kvs    string
	keyMax int
	valMax int
	ext    bool // the server knows gorun_allgather

	call    sync.Mutex // held during a call; guards everything below
	in      []byte     // received and not used yet: buf[r:w]
	r, w    int
	err     error                                  // what made the connection unusable
	fenc    uint64                                 // AllGather's epoch: part of its keys
	idle    func() (next time.Duration, err error) // of BarrierServing
	soon    bool                                   // the answer is worth staying awake for
	owed    bool                                   // the answers to the greeting are still to be read
	watched bool                                   // by watch

	write sync.Mutex // held during a write; taken after call; guards what follows
	held  string     // the greeting, until the first request goes with it
}

// Dial connects to the server of env, sends init and reads the names and limits. A gorun launcher at
// PMI_FD gets init with the first request instead. Dial waits at most a minute; see [DialContext].
func Dial(env Env) (*Client, error) { return DialContext(context.Background(), env) }

// DialContext is [Dial] whose waiting ends with ctx too. The Client does not keep ctx.
func DialContext(ctx context.Context, env Env) (*Client, error) {
	if env.Port != "" || !env.Cards { // else nobody is waited for here
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	conn, name, err := open(ctx, env)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, name: name, rank: env.Rank, size: env.Size, ext: env.Cards, in: make([]byte, LineMax)}
	if err := c.start(ctx, env); err != nil {
		conn.Close()
		return nil, fmt.Errorf("pmi: connect to the launcher through %s: %w", name, err)
	}
	return c, nil
}

// start is the opening dialogue.
func (c *Client) start(ctx context.Context, env Env) error {
	if env.Port != "" {
		if err := c.identify(ctx, env.ID); err != nil {
			return err
		}
	}
	const maxes, name = "cmd=get_maxes\n", "cmd=get_my_kvsname\n"
	hello := "cmd=init pmi_version=1 pmi_subversion=1\n"
	if env.Secure {
		hello = "cmd=init pmi_version=1 pmi_subversion=1 " + secureKey + "=1\n"
	}
	if !c.ext {
		return c.greet(ctx, hello, maxes, name)
	}
	// All is asked at once where the server is known to read what comes while it
	// answers, and with the first request if nothing was asked yet: 64 ranks on a few
	// CPUs wait in turn for each answer.
	if env.Port != "" {
		return c.greet(ctx, hello+maxes+name, "", "")
	}
	c.held, c.owed = hello+maxes+name, true
	return nil
}

// greet asks each question that is not empty and reads the answers to all three.
func (c *Client) greet(ctx context.Context, hello, maxes, name string) error {
	if _, err := c.ask(ctx, hello, "response_to_init"); err != nil {
		return err
	}
	m, err := c.ask(ctx, maxes, "maxes")
	if err != nil {
		return err
	}
	c.keyMax, c.valMax = KeyLenMax, ValLenMax
	if n, ok := m.Int("keylen_max"); ok && n > 0 {
		c.keyMax = n
	}
	if n, ok := m.Int("vallen_max"); ok && n > 0 {
		c.valMax = n
	}
	if m, err = c.ask(ctx, name, "my_kvsname"); err != nil {
		return err
	}
	if c.kvs, _ = m.Get("kvsname"); c.kvs == "" {
		return fmt.Errorf("%w: %s", ErrSyntax, m)
	}
	return nil
}

// greeted makes sure that the names and limits are known, which a greeting that is
// held or on its way still owes.
func (c *Client) greeted(ctx context.Context) error {
	if !c.owed {
		return nil
	}
	c.owed = false
	if err := c.send(nil); err != nil {
		return c.fail(c.cause(ctx, err))
	}
	if err := c.greet(ctx, "", "", ""); err != nil {
		return c.fail(fmt.Errorf("connect to the launcher through %s: %w", c.name, err))
	}
	return nil
}

// identify says who this is to a server that serves all ranks on one port.
func (c *Client) identify(ctx context.Context, id string) error {
	if _, err := c.ask(ctx, "cmd=initack pmiid="+id+"\n", "initack"); err != nil {
		return err
	}
	stop := c.watch(ctx)
	defer stop()
	for _, set := range []struct {
		key string
		to  *int
	}{{"size", &c.size}, {"rank", &c.rank}, {"debug", new(int)}} {
		m, err := c.readMessage(ctx)
		if err != nil {
			return err
		}
		n, ok := m.Int(set.key)
		if m.Cmd() != "set" || !ok {
			return fmt.Errorf("%w: %q, want cmd=set %s=N", ErrSyntax, clip(m.String()), set.key)
		}
		*set.to = n
	}
	if c.rank < 0 || c.rank >= c.size {
		return fmt.Errorf("%w: rank %d of size %d", ErrSyntax, c.rank, c.size)
	}
	return nil
}

// Rank is this process's number in the job, from 0.
func (c *Client) Rank() int { return c.rank }

// Size is the number of ranks of the job.
func (c *Client) Size() int { return c.size }

// KVSName is the name of the job's key-value space, which is unique. It
// is empty if the connection broke before the launcher sent it.
func (c *Client) KVSName() string {
	c.call.Lock()
	defer c.call.Unlock()
	_ = c.greeted(context.Background()) // the next call says why
	return c.kvs
}

// Put stores a value that all ranks can get after the next fence. Newline
// and NUL are not permitted in key and value, blank and '=' not in the key.
func (c *Client) Put(key, value string) error {
	if key == "" || strings.ContainsAny(key, " =\n\x00") || strings.ContainsAny(value, "\n\x00") {
		return fmt.Errorf("pmi: put key %q: %w: no newline or NUL in either, no blank or '=' in the key", clip(key), ErrSyntax)
	}
	c.call.Lock()
	defer c.call.Unlock()
	ctx := context.Background()
	if err := c.greeted(ctx); err != nil {
		return fmt.Errorf("pmi: put key %q: %w", clip(key), err)
	}
	if len(key) > c.keyMax {
		return fmt.Errorf("pmi: put key %q: %w: %d bytes, the limit of %s is %d", clip(key), ErrLimit, len(key), c.name, c.keyMax)
	}
	if len(value) > c.valMax {
		return fmt.Errorf("pmi: put key %q: %w: a value of %d bytes, the limit of %s is %d", clip(key), ErrLimit, len(value), c.name, c.valMax)
	}
	return c.put(ctx, key, value)
}

func (c *Client) put(ctx context.Context, key, value string) error {
	_, err := c.ask(ctx, "cmd=put kvsname="+c.kvs+" key="+key+" value="+value+"\n", "put_result")
	if err != nil {
		return fmt.Errorf("pmi: put key %q: %w", clip(key), err)
	}
	return nil
}

// Get returns the value of a key, or ErrNotFound.
func (c *Client) Get(key string) (string, error) {
	if key == "" || strings.ContainsAny(key, " =\n\x00") {
		return "", fmt.Errorf("pmi: get key %q: %w: no newline, NUL, blank or '='", clip(key), ErrSyntax)
	}
	c.call.Lock()
	defer c.call.Unlock()
	ctx := context.Background()
	if err := c.greeted(ctx); err != nil {
		return "", fmt.Errorf("pmi: get key %q: %w", clip(key), err)
	}
	return c.get(ctx, key)
}

func (c *Client) get(ctx context.Context, key string) (string, error) {
	m, err := c.ask(ctx, "cmd=get kvsname="+c.kvs+" key="+key+"\n", "get_result")
	if err != nil {
		if errors.Is(err, ErrRefused) {
			err = fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return "", fmt.Errorf("pmi: get key %q: %w", clip(key), err)
	}
	value, found := m.Get("value")
	if found && !c.ext { // gorun's values may end with anything
		value, found = cutFound(value)
	}
	if !found {
		return "", fmt.Errorf("pmi: get key %q: %w: %s", clip(key), ErrNotFound, clip(m.String()))
	}
	return value, nil
}

// Barrier waits until all ranks of the job are in it. Afterwards Get
// returns the values that they put before.
func (c *Client) Barrier(ctx context.Context) error {
	c.call.Lock()
	defer c.call.Unlock()
	c.soon = true
	defer func() { c.soon = false }()
	return c.barrier(ctx)
}

// BarrierServing is [Client.Barrier] that calls serve while it waits, for a rank that
// serves others: first after serveFirst, then after the time that serve returned. An
// error of serve ends the call, and the connection cannot be used afterwards.
func (c *Client) BarrierServing(ctx context.Context, serve func() (next time.Duration, err error)) error {
	c.call.Lock()
	defer c.call.Unlock()
	c.idle = serve
	defer func() {
		c.idle = nil
		_ = c.conn.SetReadDeadline(time.Time{})
	}()
	return c.barrier(ctx)
}

// serveFirst is long against the wait for ranks that come with this one.
const serveFirst = 20 * time.Millisecond

func (c *Client) barrier(ctx context.Context) error {
	if _, err := c.ask(ctx, "cmd=barrier_in\n", "barrier_out"); err != nil {
		return fmt.Errorf("pmi: barrier: %w", err)
	}
	return nil
}

// Abort asks the launcher to end the job with an exit code, and returns without waiting;
// the launcher then kills the process. Only a gorun launcher gets the message, as one line.
func (c *Client) Abort(code int, msg string) error {
	line := "cmd=abort exitcode=" + strconv.Itoa(code)
	if msg != "" && c.ext {
		msg = strings.Map(func(r rune) rune {
			if r == '\n' || r == 0 {
				return ' '
			}
			return r
		}, msg)
		line += " value=" + msg[:min(len(msg), ValLenMax)]
	}
	return c.send([]byte(line + "\n"))
}

// Finalize tells the server that this rank has finished with PMI, waits
// a bounded time for the answer, and closes the connection.
func (c *Client) Finalize() error {
	c.call.Lock()
	defer c.call.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_, err := c.ask(ctx, "cmd=finalize\n", "finalize_ack")
	if cerr := c.conn.Close(); err == nil {
		err = cerr
	}
	_ = c.fail(errClosed)
	if err != nil {
		return fmt.Errorf("pmi: finalize: %w", err)
	}
	return nil
}

var errClosed = errors.New("the connection was closed")

// Close closes the connection and ends a running call. For the launcher
// this rank has died, unless it has finalized. A second Close does nothing.
func (c *Client) Close() error {
	if c.write.TryLock() { // else a request takes the greeting along
		if c.held != "" { // the launcher is to see that a rank came and went
			_, _ = c.conn.Write([]byte(c.held))
			c.held = ""
		}
		c.write.Unlock()
	}
	err := c.conn.Close()
	c.call.Lock()
	defer c.call.Unlock()
	if errors.Is(c.err, errClosed) {
		return nil
	}
	c.err = errClosed
	return err
}

// ask sends lines and reads the answer to the first, which must be the command named;
// without a line it reads the next answer. One with another rc than 0 is [ErrRefused].
func (c *Client) ask(ctx context.Context, line, answer string) (Message, error) {
	return c.askBytes(ctx, []byte(line), answer)
}

func (c *Client) askBytes(ctx context.Context, request []byte, answer string) (Message, error) {
	if c.err != nil {
		return Message{}, c.err
	}
	if err := ctx.Err(); err != nil {
		return Message{}, err
	}
	stop := c.watch(ctx)
	defer stop()
	if len(request) > 0 {
		if err := c.send(request); err != nil {
			return Message{}, c.fail(c.cause(ctx, err))
		}
	}
	if err := c.greeted(ctx); err != nil {
		return Message{}, err
	}
	m, err := c.readMessage(ctx)
	if err != nil {
		return m, err
	}
	if m.Cmd() != answer {
		return m, c.fail(fmt.Errorf("%w: %s answers %q, want cmd=%s", ErrSyntax, c.name, clip(m.String()), answer))
	}
	if rc, ok := m.Int("rc"); ok && rc != 0 {
		msg, ok := m.Get("msg")
		if !ok {
			msg, _ = m.Get("value")
		}
		return m, fmt.Errorf("%w by %s: rc=%d %s", ErrRefused, c.name, rc, msg)
	}
	return m, nil
}

// watch makes I/O fail once ctx ends, until stop is called; after that it works
// again. A request that asks another one on its way, for the greeting, goes on
// watching: what the inner one took back would be the outer one's end.
func (c *Client) watch(ctx context.Context) (stop func()) {
	if ctx.Done() == nil || c.watched {
		return func() {}
	}
	c.watched = true
	fired := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		_ = c.conn.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	return func() {
		c.watched = false
		if !unhook() {
			<-fired
			_ = c.conn.SetDeadline(time.Time{})
		}
	}
}

// send writes lines, behind the greeting if that is held.
func (c *Client) send(b []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.held != "" {
		b = append([]byte(c.held), b...)
		c.held = ""
	}
	if len(b) == 0 {
		return nil
	}
	_, err := c.conn.Write(b)
	return err
}

func (c *Client) readMessage(ctx context.Context) (Message, error) {
	line, err := c.readLine(ctx)
	if err != nil {
		return Message{}, err
	}
	m, err := ParseLine(line)
	if err != nil {
		return m, c.fail(fmt.Errorf("%s: %w", c.name, err))
	}
	return m, nil
}

// readLine is the next line; it is valid until the next read.
func (c *Client) readLine(ctx context.Context) ([]byte, error) {
	scanned := 0
	for {
		for i := c.r + scanned; i < c.w; i++ {
			if c.in[i] == '\n' {
				line := c.in[c.r : i+1]
				c.r = i + 1
				return line, nil
			}
		}
		scanned = c.w - c.r
		if c.r > 0 {
			copy(c.in, c.in[c.r:c.w])
			c.r, c.w = 0, scanned
		}
		if c.w == len(c.in) {
			return nil, c.fail(fmt.Errorf("%w: from %s, the limit is %d bytes", ErrLine, c.name, LineMax))
		}
		n, err := c.read(ctx, c.in[c.w:])
		c.w += n
		if n == 0 && err != nil {
			return nil, c.fail(c.cause(ctx, err))
		}
	}
}

// read reads from the connection and calls idle while nothing comes.
func (c *Client) read(ctx context.Context, b []byte) (int, error) {
	for next := serveFirst; c.idle != nil; {
		if err := c.conn.SetReadDeadline(time.Now().Add(next)); err != nil {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err // and watch may have set its deadline before
		}
		n, err := c.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return n, err
		}
		if next, err = c.idle(); err != nil {
			return 0, &serveError{err}
		}
	}
	if c.soon {
		c.stayAwake(ctx)
	}
	return c.conn.Read(b)
}

// awake is how long a read waits without sleeping.
const awake = 50 * time.Millisecond

// stayAwake waits a while for input, and yields the CPU meanwhile. After all threads of a
// Go process have slept, its monitor thread (runtime.sysmon) looks around every 20 us for
// some milliseconds. With 16 ranks on 2 CPUs that took a third of the CPU time of their
// first collective.
func (c *Client) stayAwake(ctx context.Context) {
	file, ok := c.conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	until := time.Now().Add(awake)
	_ = raw.Control(func(fd uintptr) {
		in := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for polls := 1; ; polls++ {
			if n, err := unix.Poll(in, 0); n != 0 || err != nil && err != unix.EINTR {
				return
			}
			if polls%16 == 0 && (ctx.Err() != nil || time.Now().After(until)) {
				return
			}
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	})
}

// A serveError is what ended the wait of BarrierServing.
type serveError struct{ err error }

func (e *serveError) Error() string { return e.err.Error() }
func (e *serveError) Unwrap() error { return e.err }

// readBytes fills b with what follows a line.
func (c *Client) readBytes(ctx context.Context, b []byte) error {
	n := copy(b, c.in[c.r:c.w])
	c.r += n
	if _, err := io.ReadFull(c.conn, b[n:]); err != nil {
		return c.fail(c.cause(ctx, err))
	}
	return nil
}

// cause tells why I/O failed.
func (c *Client) cause(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*serveError](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no answer from %s: %w", c.name, ctx.Err())
	}
	return fmt.Errorf("%w: %s: %w", ErrServer, c.name, err)
}

// fail makes every later call fail with err.
func (c *Client) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	return err
}
