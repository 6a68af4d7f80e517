package pmi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// storage holds the keys of one job. Of two puts of one key the later counts,
// as with Hydra; of two hosts in one fence, the one with the higher index.
type storage struct {
	all          map[string]string
	pending      map[string]string // put since the last fence
	bytes        int               // of keys and values, pending ones included
	pendingBytes int               // what pending takes when packed, at most
	order        []string          // keys of all, sorted; nil: to be made
}

func (s *storage) init() {
	s.all = make(map[string]string)
	s.pending = make(map[string]string)
}

// put notes a pair for the next fence; false when the store is full.
func (s *storage) put(key, value string) bool {
	grow := len(key) + len(value)
	if old, ok := s.pending[key]; ok {
		grow = len(value) - len(old)
	}
	if s.bytes+grow > StoreMax {
		return false
	}
	s.bytes += grow
	s.pending[key] = value
	s.pendingBytes += len(key) + len(value) + 10
	return true
}

// packPending packs what was put since the last fence and begins anew.
func (s *storage) packPending(w *pack.Writer) {
	w.Array(2 * len(s.pending))
	for key, value := range s.pending {
		w.String(key)
		w.String(value)
		s.bytes -= len(key) + len(value) // they come back with merge
	}
	s.pending = make(map[string]string)
	s.pendingBytes = 0
}

// merge takes the pairs of contributions that were checked.
func (s *storage) merge(all [][]byte) {
	s.order = nil
	for _, c := range all {
		r := pack.NewReader(c)
		r.Array()
		r.Uint()
		for n := r.Array(); n > 1; n -= 2 {
			key, value := r.String(), r.String()
			if old, ok := s.all[key]; ok {
				s.bytes -= len(key) + len(old)
			}
			s.bytes += len(key) + len(value)
			s.all[key] = value
		}
	}
}

// keep notes a pair of PMI-2 for the next fence, and says why it does not. Ranks
// that speak PMI-1 read it too, in a line.
func (e *Engine) keep(key, value string) (why string) {
	switch {
	case key == "":
		return "no key"
	case strings.ContainsAny(key+value, "\n"):
		return fmt.Sprintf("a newline in key %s or its value", clip(key))
	case len(key) > KeyLenMax:
		return fmt.Sprintf("key %s has %d bytes, the limit is %d", clip(key), len(key), KeyLenMax)
	case len(value) > ValLenMax:
		return fmt.Sprintf("the value of key %s has %d bytes, the limit is %d", clip(key), len(value), ValLenMax)
	case !e.store.put(key, value):
		return fmt.Sprintf("with key %s the job's keys would have more than the limit of %d bytes", clip(key), StoreMax)
	}
	return ""
}

// put serves cmd=put kvsname=NAME key=K value=V.
func (e *Engine) put(p *peer, m Message) {
	name, _ := m.Get("kvsname")
	key, _ := m.Get("key")
	value, _ := m.Get("value")
	switch {
	case len(name) > KVSNameMax:
		e.refuse(p, "put_result", "kvsname", name, len(name), KVSNameMax)
	case name != e.kvsName:
		e.reply("cmd=put_result rc=-1 msg=kvsname_", word(name), "_not_found")
	case key == "":
		e.reply("cmd=put_result rc=-1 msg=no_key")
	case len(key) > KeyLenMax:
		e.refuse(p, "put_result", "key", key, len(key), KeyLenMax)
	case len(value) > ValLenMax:
		e.refuse(p, "put_result", "value_of_key", key, len(value), ValLenMax)
	case !e.store.put(key, value):
		e.refuse(p, "put_result", "store_with_key", key, e.store.bytes, StoreMax)
	default:
		e.out = append(e.out, "cmd=put_result rc=0 msg=success\n"...)
	}
}

// get serves cmd=get kvsname=NAME key=K.
func (e *Engine) get(m Message) {
	name, _ := m.Get("kvsname")
	key, _ := m.Get("key")
	value, ok := e.store.all[key]
	switch {
	case name != e.kvsName:
		e.reply("cmd=get_result rc=-1 msg=kvsname_", word(name), "_not_found value=unknown")
	case !ok:
		e.reply("cmd=get_result rc=-1 msg=key_", word(key), "_not_found value=unknown")
	default:
		e.reply("cmd=get_result rc=0 msg=success value=", value)
	}
}

// getByIndex serves cmd=getbyidx kvsname=NAME idx=N, with which clients older
// than MPICH 1.5 went through a space, in the words of MPICH's gforker.
func (e *Engine) getByIndex(m Message) {
	name, _ := m.Get("kvsname")
	i, ok := m.Int("idx")
	s := &e.store
	if s.order == nil {
		s.order = make([]string, 0, len(s.all))
		for key := range s.all {
			s.order = append(s.order, key)
		}
		slices.Sort(s.order)
	}
	switch {
	case name != e.kvsName:
		e.reply("cmd=getbyidx_results rc=-1 reason=kvsname_", word(name), "_not_found")
	case !ok || i < 0 || i >= len(s.order):
		e.reply("cmd=getbyidx_results rc=-1 reason=no_more_keyvals")
	default:
		e.reply("cmd=getbyidx_results rc=0 nextidx=", strconv.Itoa(i+1), " key=", s.order[i], " val=", s.all[s.order[i]])
	}
}

// refuse answers what is over a limit.
func (e *Engine) refuse(p *peer, result, what, name string, size, limit int) {
	e.reply("cmd=", result, " rc=-1 msg=rank_", strconv.Itoa(p.rank), ":_", what, "_", word(name), "_has_", strconv.Itoa(size), "_bytes_limit_", strconv.Itoa(limit))
}

// word makes foreign text fit for msg=, in which a blank ends the message for
// MPICH's client.
func word(s string) string { return underscores(clip(s)) }

func underscores(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}
