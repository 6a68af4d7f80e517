package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
)

// The control connection of rdma-core's ibv_rc_pingpong carries one text each
// way, with the NUL that ends it: LID, queue pair number, PSN and GID in
// hexadecimal digits. The client says its own first, and "done" when it has the
// server's.
const (
	ibvText = "0000:000000:000000:00000000000000000000000000000000"
	ibvDone = "done"
)

// ibvDepth is how many receives ibv_rc_pingpong keeps posted.
const ibvDepth = 500

// ibvPingPong exchanges sends with an ibv_rc_pingpong.
func ibvPingPong(ctx context.Context, env *rank.Environment, p *params, out io.Writer, log *logrus.Logger) (err error) {
	p.mtu = cmp.Or(p.mtu, 1024) // its default
	p.op, p.depth = opSend, ibvDepth
	e, err := newEnd(env, p, p.connect == "", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if _, ok := e.ctx.(rdma.Endpointer); ok {
		return fmt.Errorf("%s (%s) cannot reach %s, which needs a device of libibverbs: name one with -d", e.device, e.provider, peerIBV)
	}
	conn, err := connectTCP(ctx, p, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err := conn.SetDeadline(time.Now().Add(p.timeout())); err != nil {
		return err
	}
	if err := e.introduceIBV(conn); err != nil {
		return fmt.Errorf("%s at %s: %w", peerIBV, conn.RemoteAddr(), errors.Join(context.Cause(ctx), err))
	}
	log.Infof("%s", e)
	w := newClock(ctx, p.timeout())
	defer w.stop()
	took, err := e.volley(w, p.iterations)
	if err != nil {
		return err
	}
	bytes := float64(2 * p.size * p.iterations)
	fmt.Fprintf(out, "%.0f bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, took.Seconds(), bytes*8/1e6/took.Seconds())
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter\n", p.iterations, took.Seconds(), took.Seconds()*1e6/float64(p.iterations))
	return nil
}

// introduceIBV exchanges addresses and connects, in the order that
// ibv_rc_pingpong expects.
func (e *end) introduceIBV(conn net.Conn) error {
	port, err := e.ctx.QueryPort(1)
	if err != nil {
		return err
	}
	mine := card{GID: e.gid, LID: port.LID, Pairs: []pair{{QPN: e.lanes[0].qp.Num()}}, PSN: e.psn}
	done := make([]byte, len(ibvDone)+1)
	if e.serves {
		if err := e.readIBV(conn); err != nil {
			return err
		}
		if err := e.connect(); err != nil {
			return err
		}
		if _, err := conn.Write(ibvLine(mine)); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, done)
		return err
	}
	if _, err := conn.Write(ibvLine(mine)); err != nil {
		return err
	}
	if err := e.readIBV(conn); err != nil {
		return err
	}
	copy(done, ibvDone)
	if _, err := conn.Write(done); err != nil {
		return err
	}
	return e.connect()
}

func (e *end) readIBV(conn net.Conn) error {
	b := make([]byte, len(ibvText)+1)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	theirs, err := parseIBV(string(b[:len(ibvText)]))
	if err != nil {
		return err
	}
	theirs.Pairs[0].Target, theirs.MTU, theirs.RdAtom = theirs.Pairs[0].QPN, e.mtu, 1
	e.peer = theirs
	return nil
}

func ibvLine(c card) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%s\x00", c.LID, c.Pairs[0].QPN, c.PSN, hex.EncodeToString(c.GID[:]))
}

func parseIBV(text string) (card, error) {
	var c card
	bad := fmt.Errorf("it said %q, expected LID:QPN:PSN:GID as in %q", text, ibvText)
	fields := strings.Split(text, ":")
	if len(fields) != 4 || len(fields[3]) != 2*len(c.GID) {
		return c, bad
	}
	var v [3]uint64
	for i, bits := range []int{16, 24, 24} {
		var err error
		if v[i], err = strconv.ParseUint(fields[i], 16, bits); err != nil {
			return c, bad
		}
	}
	if _, err := hex.Decode(c.GID[:], []byte(fields[3])); err != nil {
		return c, bad
	}
	c.LID, c.Pairs, c.PSN = uint16(v[0]), []pair{{QPN: uint32(v[1])}}, uint32(v[2])
	return c, nil
}

// volley sends n messages and receives n: the client begins, and each end sends
// again when it has both the answer to its last message and its completion.
func (e *end) volley(w *clock, n int) (time.Duration, error) {
	l, total := &e.lanes[0], uint64(n)
	var posted, taken uint64
	start := time.Now()
	if !e.serves {
		if err := e.post(l, rdma.WRSend); err != nil {
			return 0, err
		}
		posted++
	}
	through := func() bool { return l.sent == total && taken == total }
	ready := condition(func() bool { return l.received > taken || through() })
	complete := condition(func() bool { return l.sent == posted })
	for !through() {
		if err := e.until(w, ready); err != nil {
			return 0, lost(e, int(taken), err)
		}
		for l.received > taken {
			taken++
			if err := e.postRecv(l); err != nil {
				return 0, err
			}
		}
		if posted == total {
			continue
		}
		if err := e.until(w, complete); err != nil {
			return 0, err
		}
		if err := e.post(l, rdma.WRSend); err != nil {
			return 0, err
		}
		posted++
	}
	return time.Since(start), nil
}
