package pmi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// attributes are what the ranks of a host tell each other with PMI-2's node
// attributes: no fence makes them seen, and no other host does.
type attributes struct {
	all   map[string]string
	bytes int
	waits []attributeWait
}

// attributeWait is a rank's thread that waits for an attribute.
type attributeWait struct {
	p           *peer
	key, thread string
}

// nodeAttr is an attribute of this host.
func (e *Engine) nodeAttr(key string) (value string, found bool) {
	switch key {
	case "localRanksCount":
		return strconv.Itoa(len(e.peers)), true
	case "localRanks":
		ranks := make([]string, len(e.peers))
		for i, p := range e.peers {
			ranks[i] = strconv.Itoa(p.rank)
		}
		return strings.Join(ranks, ","), true
	}
	value, found = e.attributes.all[key]
	return value, found
}

// putNodeAttr serves info-putnodeattr, and all that wait for the key.
func (e *Engine) putNodeAttr(p *peer, thread string, m Message) {
	const cmd = "info-putnodeattr"
	a := &e.attributes
	key, _ := m.Get("key")
	value, _ := m.Get("value")
	grow := len(key) + len(value)
	switch {
	case key == "":
		e.deny(p, cmd, thread, fmt.Sprintf("rank %d: no key", p.rank))
		return
	case len(key) > KeyLenMax || len(value) > ValLenMax:
		e.deny(p, cmd, thread, fmt.Sprintf("rank %d: key %s has %d bytes and its value %d, the limits are %d and %d", p.rank, clip(key), len(key), len(value), KeyLenMax, ValLenMax))
		return
	case a.bytes+grow > StoreMax:
		e.deny(p, cmd, thread, fmt.Sprintf("rank %d: the attributes of its host would have %d bytes, the limit is %d", p.rank, a.bytes+grow, StoreMax))
		return
	}
	if old, ok := a.all[key]; ok {
		grow -= len(key) + len(old)
	}
	if a.all == nil {
		a.all = make(map[string]string)
	}
	a.all[key] = value
	a.bytes += grow
	e.respond(p, cmd, thread, "rc", "0")
	e.flush(p)
	a.waits = slices.DeleteFunc(a.waits, func(w attributeWait) bool {
		if w.key == key {
			e.found(w.p, "info-getnodeattr", w.thread, value, true)
			e.flush(w.p)
		}
		return w.key == key
	})
}

// getNodeAttr serves info-getnodeattr. With wait=TRUE the answer comes when some
// rank of the host puts the key.
func (e *Engine) getNodeAttr(p *peer, thread string, m Message) {
	const cmd = "info-getnodeattr"
	key, _ := m.Get("key")
	wait, _ := m.Get("wait")
	value, found := e.nodeAttr(key)
	if found || !strings.EqualFold(wait, "true") {
		e.found(p, cmd, thread, value, found)
		return
	}
	mine := 0
	for _, w := range e.attributes.waits {
		if w.p == p {
			mine++
		}
	}
	if mine == waitersMax {
		e.violate(p, ErrLimit, fmt.Sprintf("%s, with %d before it that wait", cmd, waitersMax))
		return
	}
	e.attributes.waits = append(e.attributes.waits, attributeWait{p, key, thread})
}

// forgetWaits drops what a rank that has gone waits for.
func (e *Engine) forgetWaits(p *peer) {
	e.attributes.waits = slices.DeleteFunc(e.attributes.waits, func(w attributeWait) bool { return w.p == p })
}

// settleAttributes answers those that wait for an attribute that no rank of the
// host can put any more: each has left, is in a fence, which cannot end without
// those that wait, or waits for an attribute itself. A rank with threads is not
// through with waiting in one of them.
func (e *Engine) settleAttributes() {
	waits := e.attributes.waits
	if len(waits) == 0 {
		return
	}
	waiting := make(map[*peer]bool, len(waits))
	for _, w := range waits {
		waiting[w.p] = waiting[w.p] || w.thread == ""
	}
	for _, p := range e.peers {
		switch p.state {
		case inFence, finalized, gone, violated:
		default:
			if !waiting[p] {
				return
			}
		}
	}
	e.attributes.waits = nil
	for _, w := range waits {
		e.found(w.p, "info-getnodeattr", w.thread, "", false)
		e.flush(w.p)
	}
}
