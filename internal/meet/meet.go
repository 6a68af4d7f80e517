// Package meet tries whether hosts reach each other, as the hosts of a job will have to: each listens at the address
// that it would have in a job, on free ports of TCP and UDP or of those that the job would take, and calls each of the others.
//
//	host (Serve, its standard streams)        who asks (All)
//	        order: key, how to find the address   ◀
//	▶ here: address, ports, own name
//	        peers: all hosts' addresses           ◀
//	▶ tried: what came of each call
//	        the end of the stream: close          ◀
//
// The messages are lines of JSON, and what a login script prints before them is passed over. The key is of this
// meeting alone. A call by TCP is a TLS handshake in which both ends prove that they know it, one by UDP a challenge and its
// answer, so a listener is of no use to anybody else.
//
// Serve returns when its input ends, or its context; what reads the input ends with that. All returns when every stream
// has answered or ended: the caller bounds that. No socket stays open.
package meet

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
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
)

// An Order is what a host is told first.
type Order struct {
	Key       []byte      // of KeySize
	Interface string      // as --interface; "": the host's choice
	Toward    string      // an address of another host, for one that no remote shell has started; "": none
	Remote    bool        // a remote shell has started it
	Ports     ports.Range // of which it listens at one
}

// KeySize is the length of a meeting's key in bytes.
const KeySize = 32

// A Here is what a host says of itself.
type Here struct {
	Meet     int      // the version of these messages
	Host     string   // its own name
	Own      []string // the addresses that it takes that name for
	Address  string   // where the others are to call
	Why      string   // it is that
	TCP, UDP int      // ports
	Error    string   // why there is none; "": there is
}

// version is Here.Meet.
const version = 1

// A Peer is where a host is called.
type Peer struct {
	Address  string
	TCP, UDP int
}

// peers is what a host is told then; its own place among them has no address.
type peers struct{ Peers []Peer }

// A Call is what has come of a host's calls of another one: why there was no answer, or how long it took. The host has
// not called itself.
type Call struct {
	TCP, UDP string        // "": it has answered
	Took     time.Duration // to connect by TCP
}

// tried are the calls of one host.
type tried struct{ Calls []Call }

// Limit is how long a call may take.
const Limit = 3 * time.Second

// callsAtOnce bounds the calls that a host makes, and answers, at a time.
const callsAtOnce = 64

// Serve is a host's part. address finds its address, as for a job.
func Serve(ctx context.Context, in io.Reader, out io.Writer, address func(Order) (netip.Addr, string, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	decoder := json.NewDecoder(in)
	var order Order
	if err := receive(ctx, decoder, &order); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	say := json.NewEncoder(out)
	here := Here{Meet: version}
	here.Host, here.Own = ownName(ctx)
	var l *listener
	at, why, err := address(order)
	if err == nil {
		here.Address, here.Why = at.String(), why
		if l, err = listen(order.Key, at, order.Ports); err == nil {
			defer l.close()
			here.TCP, here.UDP = l.ports()
		}
	}
	if err != nil {
		here.Error = err.Error()
	}
	if err := say.Encode(here); err != nil {
		return err
	}
	var all peers
	if err := receive(ctx, decoder, &all); err != nil {
		return unlessEnd(err)
	}
	t := tried{make([]Call, len(all.Peers))}
	gate := make(chan struct{}, callsAtOnce)
	var calls sync.WaitGroup
	for i, p := range all.Peers {
		if p.Address == "" {
			continue
		}
		calls.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			t.Calls[i] = call(ctx, order.Key, p)
		})
	}
	calls.Wait()
	if err := say.Encode(t); err != nil {
		return err
	}
	// The others may still be calling.
	return unlessEnd(receive(ctx, decoder, &all))
}

func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receive decodes a message, or gives up when ctx ends; what reads then ends with the stream.
func receive(ctx context.Context, d *json.Decoder, into any) error {
	done := make(chan error, 1)
	go func() { done <- d.Decode(into) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ownName is this host's name, and what it leads to here.
func ownName(ctx context.Context) (name string, own []string) {
	name, _ = os.Hostname()
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	own, _ = net.DefaultResolver.LookupHost(ctx, name)
	return name, own
}

// A Stream is a host's standard streams.
type Stream struct {
	In  io.WriteCloser
	Out io.Reader
}

// A Host is what a meeting knows of one host.
type Host struct {
	Here
	Calls []Call // of the others, by their index; nil where Err is set
	Err   error  // why it did not take part, or not to the end
}

// All has hosts meet, each with its order but for the key. It closes the streams' inputs; the caller ends what is
// behind them when ctx ends, or All does not return.
func All(ctx context.Context, streams []Stream, orders []Order) []Host {
	hosts := make([]Host, len(streams))
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // which never fails
	outs := make([]*bufio.Reader, len(streams))
	each := func(do func(i int) error) {
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				if hosts[i].Err == nil {
					hosts[i].Err = do(i)
				}
			})
		}
		all.Wait()
	}
	each(func(i int) error {
		outs[i] = bufio.NewReader(streams[i].Out)
		order := orders[i]
		order.Key = key
		if err := json.NewEncoder(streams[i].In).Encode(order); err != nil {
			return err
		}
		if err := line(outs[i], `{"Meet":`, &hosts[i].Here); err != nil {
			return err
		}
		if hosts[i].Meet != version {
			return fmt.Errorf("found messages of version %d, expected %d", hosts[i].Meet, version)
		}
		if hosts[i].Error != "" {
			return errors.New(hosts[i].Error)
		}
		return nil
	})
	list := peers{make([]Peer, len(streams))}
	for i, h := range hosts {
		if h.Err == nil {
			list.Peers[i] = Peer{h.Address, h.TCP, h.UDP}
		}
	}
	each(func(i int) error {
		others := peers{append([]Peer(nil), list.Peers...)}
		others.Peers[i] = Peer{}
		if err := json.NewEncoder(streams[i].In).Encode(others); err != nil {
			return err
		}
		var t tried
		if err := line(outs[i], `{"Calls":`, &t); err != nil {
			return err
		}
		if len(t.Calls) != len(streams) {
			return fmt.Errorf("found the calls of %d hosts, expected %d", len(t.Calls), len(streams))
		}
		hosts[i].Calls = t.Calls
		return nil
	})
	for _, s := range streams {
		_ = s.In.Close()
	}
	return hosts
}

// strayMost is how much may stand before a message.
const strayMost = 64 << 10

// line reads the next line that begins so.
func line(r *bufio.Reader, begin string, into any) error {
	for stray := 0; stray < strayMost; {
		text, err := r.ReadBytes('\n')
		if bytes.HasPrefix(text, []byte(begin)) && err == nil {
			return json.Unmarshal(text, into)
		}
		if err != nil {
			if last := bytes.TrimSpace(text); len(last) > 0 {
				return fmt.Errorf("it said %q and no more: %w", last, err)
			}
			return err
		}
		stray += len(text)
	}
	return fmt.Errorf("found %d bytes of other text, expected a line that begins with %s", strayMost, begin)
}
