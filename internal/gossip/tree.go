package gossip

import "slices"

// The tree: children of host i are i*fanout+1 ... i*fanout+fanout.

func (f *fences) parent() int { return (f.index - 1) / f.fanout }

func (f *fences) children() []int {
	var c []int
	for i := f.index*f.fanout + 1; i <= f.index*f.fanout+f.fanout && i < f.hosts; i++ {
		c = append(c, i)
	}
	return c
}

// inSubtree tells whether host is root or below it.
func (f *fences) inSubtree(host, root int) bool {
	for host > root {
		host = (host - 1) / f.fanout
	}
	return host == root
}

func (f *fences) sendUp(v *fence) {
	f.sendEntries(v, f.parent(), kindUp, func(h int) bool { return f.inSubtree(h, f.index) })
}

func (f *fences) sendDown(v *fence, child int) {
	f.sendEntries(v, child, kindDown, func(h int) bool { return !f.inSubtree(h, child) })
}

// sendEntries sends the entries of some hosts in as few messages as fit.
func (f *fences) sendEntries(v *fence, to int, kind messageKind, want func(host int) bool) {
	m := message{kind: kind, epoch: v.epoch}
	size := headSize
	for h := range v.entries {
		if !want(h) {
			continue
		}
		for i, data := range v.entries[h].parts {
			if len(m.parts) > 0 && size+partHead+len(data) > messageMax {
				f.send(to, m)
				m.parts, size = nil, headSize
			}
			m.parts = append(m.parts, part{h, i, len(v.entries[h].parts), data})
			size += partHead + len(data)
		}
	}
	f.send(to, m)
}

func (f *fences) send(to int, m message) {
	m.from, m.next = f.index, f.next
	if len(m.parts) > 0 {
		f.sending[sendKey{to, m.epoch}]++
	}
	f.out = append(f.out, outgoing{to, m})
}

// take gives the messages to be sent away.
func (f *fences) take() []outgoing {
	out := f.out
	f.out = nil
	return out
}

// sync is what a push-pull carries, in messages of at most limit bytes in all:
// the fences in flight, newest first.
func (f *fences) sync(limit int) []message {
	epochs := make([]uint64, 0, len(f.open))
	for epoch := range f.open {
		epochs = append(epochs, epoch)
	}
	slices.Sort(epochs)
	slices.Reverse(epochs)
	var out []message
	for _, epoch := range epochs {
		v := f.open[epoch]
		m := message{kind: kindSync, from: f.index, epoch: epoch, next: f.next}
		for h, e := range v.entries {
			for i, data := range e.parts {
				if data != nil {
					m.parts = append(m.parts, part{h, i, len(e.parts), data})
				}
			}
		}
		if limit -= 4 + m.size(); limit < 0 {
			break
		}
		out = append(out, m)
	}
	return out
}
