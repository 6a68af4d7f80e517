package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/pmix"
	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// helper stands between libpmix and the host.
type helper struct {
	control *os.File
	in      link.Decoder
	buf     []byte
	server  *pmix.Server
	relay   *relay

	mu     sync.Mutex
	spaces map[string]link.Space
	asked  map[uint64]func(link.Message) // by ID
	last   uint64
	shown  map[string]bool // texts of Log that need not be shown again
	room   int             // bytes that may be added to them

	writing sync.Mutex // one frame after the other
}

var _ pmix.Handler = (*helper)(nil)

func newHelper(control *os.File) *helper {
	return &helper{control: control, buf: make([]byte, 64<<10), spaces: map[string]link.Space{}, asked: map[uint64]func(link.Message){}, shown: map[string]bool{}, room: shownMax, relay: new(relay)}
}

// next is the host's next frame.
func (h *helper) next() (link.Message, error) {
	for {
		m, ok, err := h.in.Next()
		if ok || err != nil {
			return m, err
		}
		n, err := h.control.Read(h.buf)
		h.in.Add(h.buf[:n])
		if n == 0 && err != nil {
			return link.Message{}, io.EOF // however it ended: nobody is there
		}
	}
}

// send writes a frame. It returns when the host has it in its socket, so that the
// host knows of it before it can know of anything that comes after.
func (h *helper) send(m *link.Message) {
	frame, err := link.Append(nil, m)
	if err != nil {
		frame, err = link.Append(nil, &link.Message{Kind: link.Failed, Text: err.Error()})
	}
	if err != nil {
		return
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	// An error is that of the stream, whose end next sees.
	_, _ = h.control.Write(frame)
}

func (h *helper) register(s link.Space) error {
	if err := mkdir(sessionOf(s)); err != nil {
		return fmt.Errorf("directory for Open MPI: %w", err)
	}
	if err := h.server.Register(pmix.Namespace(s)); err != nil {
		return err
	}
	h.mu.Lock()
	h.spaces[s.Name] = s
	h.mu.Unlock()
	return nil
}

// drop forgets a namespace whose ranks have ended.
func (h *helper) drop(name string) {
	h.mu.Lock()
	delete(h.spaces, name)
	h.mu.Unlock()
	h.server.Deregister(name)
}

// sessionOf is the directory of a namespace on this host; "": it has none.
func sessionOf(s link.Space) string {
	if s.Session == "" || s.Node < 0 {
		return ""
	}
	return filepath.Join(s.Session, s.Name)
}

// mkdir makes a directory that may be there; the empty name is none.
func mkdir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// here tells whether all of procs are on this host.
func (h *helper) here(procs []pmix.Proc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range procs {
		s, ok := h.spaces[p.Space]
		if !ok {
			return false
		}
		for r, n := range s.NodeOf {
			if (p.Rank == pmix.Wildcard || p.Rank == uint32(r)) && int(n) != s.Node {
				return false
			}
		}
	}
	return true
}

// ask sends a question; done gets the answer.
func (h *helper) ask(m link.Message, done func(link.Message)) (id uint64) {
	m.Kind = link.Ask
	h.mu.Lock()
	h.last++
	m.ID = h.last
	h.asked[m.ID] = done
	h.mu.Unlock()
	h.send(&m)
	return m.ID
}

// taken is the request that waits for an answer, once; nil: none, any more.
func (h *helper) taken(id uint64) func(link.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	done := h.asked[id]
	delete(h.asked, id)
	return done
}

func (h *helper) answered(m link.Message) {
	if done := h.taken(m.ID); done != nil {
		done(m)
	}
}

// status is libpmix's word for how an Ask ended.
func status(m link.Message) pmix.Status {
	switch m.Code {
	case link.OK:
		return 0
	case link.NotFound:
		return pmix.NotFound()
	case link.Partial:
		return pmix.Partial()
	case link.Duplicate:
		return pmix.Duplicate()
	}
	if m.Text != "" {
		fmt.Fprintln(os.Stderr, "gorun-pmix: "+m.Text)
	}
	return pmix.Failed()
}

func (h *helper) Connected(p pmix.Proc) {
	h.mu.Lock()
	session := sessionOf(h.spaces[p.Space])
	h.mu.Unlock()
	if session != "" {
		// Who misses its directory says so.
		_ = mkdir(filepath.Join(session, strconv.FormatUint(uint64(p.Rank), 10)))
	}
	h.send(&link.Message{Kind: link.Joined, Proc: p, Wait: h.relay.second(p)})
}

func (h *helper) Finalized(p pmix.Proc) { h.send(&link.Message{Kind: link.Left, Proc: p}) }

// shownMax bounds the texts that are remembered, in bytes.
const shownMax = 1 << 20

func (h *helper) Log(p pmix.Proc, stream int, text string, once bool) {
	if once {
		h.mu.Lock()
		shown := h.shown[text]
		if !shown && h.room >= len(text) {
			h.shown[text] = true
			h.room -= len(text)
		}
		h.mu.Unlock()
		if shown {
			return
		}
	}
	h.send(&link.Message{Kind: link.Log, Proc: p, Sort: uint8(stream), Text: text})
}

func (h *helper) Abort(r pmix.Request, p pmix.Proc, status int, text string) {
	h.send(&link.Message{Kind: link.Abort, Proc: p, Status: status, Text: text})
	r.Done(0)
}

func (h *helper) Group(r pmix.Request, k pmix.Kind, name string, members []pmix.Proc, context bool, data []byte) {
	answer := func(m link.Message) {
		var infos []pmix.Info
		if k == pmix.Construct {
			infos = append(infos, pmix.Info{Name: "PMIX_GROUP_MEMBERSHIP", Value: members})
		}
		if m.Status != 0 {
			infos = append(infos, pmix.Info{Name: "PMIX_GROUP_CONTEXT_ID", Value: uint64(m.Status)})
		}
		if len(m.Data) > 0 {
			infos = append(infos, pmix.Info{Name: "PMIX_GROUP_ENDPT_DATA", Value: m.Data})
		}
		r.Infos(status(m), infos)
	}
	if !context && h.here(members) {
		answer(link.Message{Data: data})
		return
	}
	h.ask(link.Message{Op: link.Meet, Sort: uint8(k), Text: name, Procs: members, Wait: context, Data: data}, answer)
}

func (h *helper) Control(r pmix.Request, p pmix.Proc, c pmix.Control) {
	h.ask(link.Message{Op: link.Control, Proc: p, Procs: c.Procs, Status: c.Signal, Wait: c.End}, func(m link.Message) {
		r.Infos(status(m), nil)
	})
}

func (h *helper) Fence(r pmix.Request, k pmix.Kind, members []pmix.Proc, data []byte) {
	if h.here(members) {
		r.Data(0, data)
		return
	}
	h.ask(link.Message{Op: link.Meet, Sort: uint8(k), Procs: members, Data: data}, func(m link.Message) { r.Data(status(m), m.Data) })
}

func (h *helper) Modex(r pmix.Request, p pmix.Proc) {
	h.ask(link.Message{Op: link.Modex, Proc: p}, func(m link.Message) { r.Data(status(m), m.Data) })
}

// request is another host's Modex for one of our processes.
func (h *helper) request(m link.Message) {
	h.server.Modex(m.Proc, func(s pmix.Status, data []byte) {
		code := link.OK
		if s != 0 {
			code = link.NotFound
		}
		h.send(&link.Message{Kind: link.Reply, ID: m.ID, Code: code, Data: data})
	})
}

func (h *helper) Publish(r pmix.Request, p pmix.Proc, pairs []pmix.Pair) {
	h.ask(link.Message{Op: link.Publish, Proc: p, Pairs: pairs}, func(m link.Message) { r.Done(status(m)) })
}

func (h *helper) Lookup(r pmix.Request, p pmix.Proc, keys []string, wait bool, seconds int) {
	id := h.ask(link.Message{Op: link.Lookup, Proc: p, Keys: keys, Wait: wait}, func(m link.Message) {
		r.Found(status(m), m.Pairs)
	})
	if !wait || seconds <= 0 {
		return
	}
	time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		if h.taken(id) != nil {
			h.send(&link.Message{Kind: link.Ask, Op: link.Forget, ID: id})
			r.Found(pmix.TimedOut(), nil)
		}
	})
}

func (h *helper) Unpublish(r pmix.Request, p pmix.Proc, keys []string) {
	h.ask(link.Message{Op: link.Unpublish, Proc: p, Keys: keys}, func(m link.Message) { r.Done(status(m)) })
}

func (h *helper) Spawn(r pmix.Request, p pmix.Proc, apps []pmix.App) {
	h.ask(link.Message{Op: link.Spawn, Proc: p, Apps: apps}, func(m link.Message) { r.Spawned(status(m), m.Text) })
}

func (h *helper) Notify(data []byte) {
	h.send(&link.Message{Kind: link.Ask, Op: link.Notify, Data: data})
}
