package gossip

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"
)

// A delegate is what memberlist calls; none of it may block or call memberlist.
type delegate struct{ n *Node }

var (
	_ memberlist.Delegate      = delegate{}
	_ memberlist.EventDelegate = delegate{}
)

// NodeMeta gives nothing: the index is in the name.
func (d delegate) NodeMeta(int) []byte { return nil }

// GetBroadcasts gives nothing: broadcasts may never complete.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// NotifyMsg takes nothing: fences have connections of their own, see branch.
func (d delegate) NotifyMsg([]byte) {}

// syncMax bounds what a push-pull carries of fences; memberlist takes 20 MiB in
// all.
const syncMax = 8 << 20

// LocalState is what a push-pull tells: the messages of fences in flight, each
// behind its length.
func (d delegate) LocalState(bool) []byte {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	var b []byte
	for _, m := range d.n.fences.sync(syncMax) {
		b = binary.BigEndian.AppendUint32(b, uint32(m.size()))
		b = m.appendTo(b)
	}
	return b
}

// MergeRemoteState takes what LocalState gave elsewhere.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	b = append([]byte(nil), b...)
	for len(b) >= 4 {
		size := binary.BigEndian.Uint32(b)
		b = b[4:]
		if uint64(size) > uint64(len(b)) {
			return
		}
		d.n.receive(b[:size:size])
		b = b[size:]
	}
}

// NotifyJoin comes when a host is a member, this one first of all.
func (d delegate) NotifyJoin(node *memberlist.Node) {
	index, _, _ := strings.Cut(node.Name, ":")
	if i, err := strconv.Atoi(index); err == nil {
		d.n.joined(i)
	}
}

// NotifyUpdate is of no interest.
func (d delegate) NotifyUpdate(*memberlist.Node) {}

// NotifyLeave comes when memberlist takes a host for dead.
func (d delegate) NotifyLeave(node *memberlist.Node) {
	_, host, _ := strings.Cut(node.Name, ":")
	d.n.suspect(host)
}
