package verbs

/*
#include "mlx5.h"
*/
import "C"

import (
	"math"

	"github.com/gorun-mpi/gorun/rdma"
)

// An mkey is a key with a layout (mlx5dv_create_mkey). The layout is in the request
// that sets it, so a queue pair takes as many pieces as its requests have room for
// inline data: see roomForPieces.
type mkey struct {
	d       *domain
	ext     *extension
	h       handle
	node    node
	entries int // that the program asked for
	lkey    uint32
	rkey    uint32
}

var _ rdma.Mkey = (*mkey)(nil)

// What libmlx5 writes a layout into (v44 to v58, qp.c: umr_strided_seg_create,
// umr_sg_list_create): blocks and strides in 16 bits, the length of a list in an int.
// It truncates what is more.
const (
	mostStride = math.MaxUint16
	mostList   = math.MaxInt32
)

// A request has its layout where inline data would be: pieces of 16 bytes, where
// inline data begins with a header of 4. Interleaved ones have one more in front.
const (
	pieceBytes   = 16
	inlineHeader = 4
)

func roomForPieces(inline int, interleaved bool) int {
	n := (inline + inlineHeader) / pieceBytes
	if interleaved {
		n--
	}
	return n
}

// inlineForPieces is the MaxInlineData that roomForPieces wants.
func inlineForPieces(n int, interleaved bool) int {
	if interleaved {
		n++
	}
	return n*pieceBytes - inlineHeader
}

// tryLayouts makes a key, and a queue pair that sets layouts.
func (c *deviceContext) tryLayouts(ext *extension) error {
	return c.withQueue(func(pd, cq handle) error {
		entries := C.uint16_t(2)
		var h handle
		var lkey, rkey C.uint32_t
		if rc := C.gv_mlx5_create_mkey(&ext.lib, pd, &entries, &h, &lkey, &rkey); rc != 0 {
			return failed("mlx5dv_create_mkey", rc, "")
		}
		defer C.gv_mlx5_destroy_mkey(&ext.lib, h)
		return c.tryExtended(ext, pd, cq, 0, C.gv_mlx5_qp{kind: C.GV_QP_RC, layouts: 1})
	})
}

// CreateMkey makes a key that opens nothing yet.
func (d *domain) CreateMkey(entries int) (rdma.Mkey, error) {
	const op = "create_mkey"
	c := d.c
	if err := c.Supports(rdma.FeatureUMR); err != nil {
		return nil, err
	}
	ext, err := c.mlx5(op)
	if err != nil {
		return nil, err
	}
	if most := roomForPieces(c.maxInline(), true); entries < 1 || entries > most {
		return nil, invalid(op, "%d entries: the device has 1 to %d", entries, most)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check(op, &d.node); err != nil {
		return nil, err
	}
	k := &mkey{d: d, ext: ext, entries: entries}
	room := C.uint16_t(entries + 1) // interleaved pieces have a head: mlx5dv_wr_post(3)
	var lkey, rkey C.uint32_t
	if rc := C.gv_mlx5_create_mkey(&ext.lib, d.h, &room, &k.h, &lkey, &rkey); rc != 0 {
		return nil, failed(op, rc, "")
	}
	k.lkey, k.rkey = uint32(lkey), uint32(rkey)
	k.node.adopt(&d.node)
	return k, nil
}

func (k *mkey) PD() rdma.PD  { return k.d }
func (k *mkey) LKey() uint32 { return k.lkey }
func (k *mkey) RKey() uint32 { return k.rkey }

func (k *mkey) Close() error {
	return k.d.c.shut("destroy_mkey", &k.node, func() error {
		return failed("destroy_mkey", C.gv_mlx5_destroy_mkey(&k.ext.lib, k.h), "")
	})
}

// opRegMkey is the place of WRRegMkey in a tally.
const opRegMkey = 15

// opOf is the place of an operation in a tally.
func opOf(op rdma.WROpcode) uint8 { return uint8(min(op, opRegMkey)) }

// wrDriver1 and wcDriver1 are IBV_WR_DRIVER1 and IBV_WC_DRIVER1: mlx5 has them for
// what sets a layout.
const (
	wrDriver1 = 11
	wcDriver1 = 135
)

// layOutMkey writes a request that sets a layout. One is the last of its batch, so
// there is one layout to hold.
func (q *queuePair) layOutMkey(to *sendWR, wr *rdma.SendWR) error {
	const op = "post_send"
	if err := q.c.Supports(rdma.FeatureUMR); err != nil {
		return err
	}
	if q.how.ex == 0 {
		return notSupported(op, "a layout is set through RC, not %v", q.init.Type)
	}
	k, ok := wr.Mkey.(*mkey)
	if !ok || k.d.c != q.c || wr.Layout == nil {
		return invalid(op, "the request needs an Mkey of this context and a layout")
	}
	l := wr.Layout
	if wrong := l.Wrong(k.entries); wrong != "" {
		return invalid(op, "%s", wrong)
	}
	if err := q.c.alive(op, &k.node); err != nil {
		return err
	}
	strided := len(l.Interleaved) > 0
	if n, room := len(l.List)+len(l.Interleaved), roomForPieces(q.init.Cap.MaxInlineData, strided); n > room {
		return invalid(op, "a layout of %d pieces: requests of this queue pair have room for %d; create it with MaxInlineData %d", n, room, inlineForPieces(n, strided))
	}
	if !strided && l.Len() > mostList {
		return notSupported(op, "a list of %d bytes: libmlx5 counts them to %d", l.Len(), mostList)
	}
	for _, p := range l.Interleaved {
		if uint64(p.Count)+uint64(p.Skip) > mostStride {
			return notSupported(op, "a stride of %d bytes: libmlx5 counts them to %d", uint64(p.Count)+uint64(p.Skip), mostStride)
		}
	}
	at, n, ok := q.layout.write(l)
	if !ok {
		return errFull(op + ": layout")
	}
	to.opcode, to.numSGE = wrDriver1, 0
	to.mw, to.bindAddr, to.bindLen, to.bindAcc = uint64(k.h), at, uint64(n), uint32(l.Access)
	if strided {
		to.mwRKey = l.Repeat
	}
	return nil
}

// submit posts a batch of requests that were laid out. Whom libibverbs' own verb
// does not do for is posted to by functions.
func (q *queuePair) submit(b *batch[sendWR], n int, wrs []rdma.SendWR) (int, C.int) {
	switch {
	case q.how.ex == 0:
	case q.init.Type == rdma.DCI:
		taken, rc := q.postExtended(b, n)
		q.countConnects(wrs[:taken])
		return taken, rc
	case wrs[n-1].Opcode.Operation().Needs&rdma.NeedsLayout != 0:
		return q.postExtended(b, n)
	}
	return postSend(q.h, b, n)
}
