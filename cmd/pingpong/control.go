package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rank"
)

// A control is how the two ends speak beside their queue pairs. It belongs to
// one goroutine.
type control interface {
	server() bool
	// exchange gives the peer mine and returns what it gave. Both ends call it
	// equally often.
	exchange(ctx context.Context, mine []byte) ([]byte, error)
	// barrier returns when both ends have called it.
	barrier(ctx context.Context) error
	Close() error
}

// meet connects the ends.
func meet(ctx context.Context, env *rank.Environment, p *params, log *logrus.Logger) (control, error) {
	if p.launched {
		return meetPMI(ctx, env)
	}
	conn, err := connectTCP(ctx, p, log)
	if err != nil {
		return nil, err
	}
	return &tcpControl{conn: conn, r: bufio.NewReaderSize(conn, maxLine), serves: p.connect == "", timeout: p.timeout()}, nil
}

// connectTCP is a client's connection to its server, or a server's to the
// first client that comes.
func connectTCP(ctx context.Context, p *params, log *logrus.Logger) (net.Conn, error) {
	if p.connect != "" {
		d := net.Dialer{Timeout: p.timeout()}
		conn, err := d.DialContext(ctx, "tcp", p.connect)
		if err != nil {
			return nil, fmt.Errorf("no server at %s; start one there with pingpong --listen %s: %w", p.connect, p.connect, err)
		}
		return conn, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.listen)
	if err != nil {
		return nil, fmt.Errorf("cannot wait for a client at %s; another address is taken with --listen: %w", p.listen, err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	log.Infof("waiting for a client at %s", l.Addr())
	conn, err := l.Accept()
	if err != nil {
		return nil, fmt.Errorf("waiting for a client at %s: %w", l.Addr(), errors.Join(context.Cause(ctx), err))
	}
	return conn, nil
}

// tcpControl exchanges lines of JSON.
type tcpControl struct {
	conn    net.Conn
	r       *bufio.Reader
	serves  bool
	timeout time.Duration
}

// maxLine bounds what a peer can make this end hold.
const maxLine = 16 << 10

func (c *tcpControl) server() bool { return c.serves }

func (c *tcpControl) exchange(ctx context.Context, mine []byte) ([]byte, error) {
	defer context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })()
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	_, err := c.conn.Write(append(bytes.Clone(mine), '\n'))
	var line []byte
	if err == nil {
		line, err = c.readLine()
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return nil, errors.New("the peer has ended; its own output says why")
	case err != nil:
		return nil, fmt.Errorf("control connection to %s: %w", c.conn.RemoteAddr(), err)
	}
	return line, nil
}

func (c *tcpControl) readLine() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = fmt.Errorf("a line of more than %d bytes: this is no pingpong", maxLine)
	}
	return bytes.Clone(line), err
}

func (c *tcpControl) barrier(ctx context.Context) error {
	line, err := c.exchange(ctx, []byte(`"here"`))
	if err == nil && string(bytes.TrimSpace(line)) != `"here"` {
		err = fmt.Errorf("the peer is elsewhere: it said %.100q", line)
	}
	return err
}

func (c *tcpControl) Close() error { return c.conn.Close() }

// pmiControl exchanges cards through the launcher.
type pmiControl struct{ client *pmi.Client }

func meetPMI(ctx context.Context, env *rank.Environment) (control, error) {
	client, err := pmi.DialContext(ctx, env.Server())
	if err != nil {
		return nil, err
	}
	if client.Size() != 2 {
		return nil, errors.Join(fmt.Errorf("started as %d ranks; a ping-pong has two ends: gorun -np 2 pingpong", client.Size()), client.Finalize())
	}
	return &pmiControl{client}, nil
}

func (c *pmiControl) server() bool { return c.client.Rank() == 0 }

func (c *pmiControl) exchange(ctx context.Context, mine []byte) ([]byte, error) {
	cards, err := c.client.AllGather(ctx, mine)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(cards[1-c.client.Rank()]), nil
}

func (c *pmiControl) barrier(ctx context.Context) error { return c.client.Barrier(ctx) }
func (c *pmiControl) Close() error                      { return c.client.Finalize() }

// swap exchanges values as JSON.
func swap[T any](ctx context.Context, ctl control, mine T) (T, error) {
	var theirs T
	b, err := json.Marshal(mine)
	if err != nil {
		return theirs, err
	}
	b, err = ctl.exchange(ctx, b)
	if err != nil {
		return theirs, err
	}
	if err := json.Unmarshal(b, &theirs); err != nil {
		return theirs, fmt.Errorf("the peer is no pingpong of this version: it said %.100q: %w", b, err)
	}
	return theirs, nil
}

// hello is the first thing that an end says.
type hello struct {
	Program string `json:"program"`
	Server  bool   `json:"server"`
	Task    task   `json:"task"`
	// Secret is the server's, for links of the software device over TCP: who
	// reaches the control connection may reach the memory, as with the tools
	// that this one is modelled on.
	Secret []byte `json:"secret,omitempty"`
}

// program is the name and version of the protocol.
const program = "gorun pingpong 2"

// agree makes sure that both ends mean to do the same, and gives the secret.
func agree(ctx context.Context, ctl control, p *params) ([]byte, error) {
	mine := hello{Program: program, Server: ctl.server(), Task: p.task()}
	if mine.Server {
		mine.Secret = make([]byte, 32)
		rand.Read(mine.Secret)
	}
	theirs, err := swap(ctx, ctl, mine)
	switch {
	case err != nil:
		return nil, err
	case theirs.Program != program:
		return nil, fmt.Errorf("the peer is %.100q, expected %q", theirs.Program, program)
	case theirs.Server == mine.Server:
		return nil, errors.New("both ends are servers or both are clients")
	case theirs.Task != mine.Task:
		return nil, fmt.Errorf("the ends are to do different things, expected the same:\n  here  %v\n  there %v", mine.Task, theirs.Task)
	}
	if mine.Server {
		return mine.Secret, nil
	}
	if len(theirs.Secret) < 16 {
		return nil, errors.New("the server gave no secret")
	}
	return theirs.Secret, nil
}
