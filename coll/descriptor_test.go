package coll

import (
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// forged is a member of a team and the memory of another, mapped.
type forged struct {
	w      *wire
	region rdma.MR
}

// forge makes two devices that last as long as the process of a fuzz target.
func forge(f *testing.F) forged {
	s, err := shm.NewLocal(shm.Geometry{Ranks: 2, ArenaSize: 4 << 20})
	if err != nil {
		f.Fatal(err)
	}
	var contexts [2]rdma.Context
	for i := range contexts {
		p, err := soft.New(soft.Config{Segment: s, Rank: i, Host: "here"})
		if err != nil {
			f.Fatal(err)
		}
		devices, err := p.Devices()
		if err != nil {
			f.Fatal(err)
		}
		if contexts[i], err = devices[0].Open(); err != nil {
			f.Fatal(err)
		}
	}
	pd, err := contexts[1].AllocPD()
	if err != nil {
		f.Fatal(err)
	}
	region, err := pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	if err != nil {
		f.Fatal(err)
	}
	gid, err := contexts[1].QueryGID(1, 0)
	if err != nil {
		f.Fatal(err)
	}
	if err := contexts[0].(rdma.Endpointer).AddEndpoint(gid, contexts[1].(rdma.Endpointer).Endpoint()); err != nil {
		f.Fatal(err)
	}
	memory, err := contexts[0].(rdma.Mapper).Peer(gid)
	if err != nil {
		f.Fatal(err)
	}
	return forged{(*wire)(&Team{peers: []peer{{memory: memory}}}), region}
}

// FuzzReadDescriptor reads the descriptor of any buffer, whose key and address may be
// those of a region: a peer's memory is mapped by it inside that region alone, for what
// the region grants.
func FuzzReadDescriptor(f *testing.F) {
	r := forge(f)
	bytesOf := func(d descriptor) []byte {
		b := make([]byte, descriptorLen)
		d.put(b)
		return b
	}
	f.Add(bytesOf(descriptor{n: 4096, access: rdma.AccessRemoteRead}), true)
	f.Add(bytesOf(descriptor{addr: 4090, n: 8, access: rdma.AccessRemoteRead}), true)
	f.Add(bytesOf(descriptor{addr: 8, n: ^uint64(0), access: rdma.AccessRemoteRead}), true)
	f.Add(bytesOf(descriptor{addr: ^uint64(0) - 3, n: 8, access: rdma.AccessRemoteRead}), true)
	f.Add(bytesOf(descriptor{n: 8, access: rdma.AccessRemoteRead | rdma.AccessRemoteWrite}), true)
	f.Add(bytesOf(descriptor{addr: r.region.Addr(), n: 8, rkey: r.region.RKey() ^ 1, access: rdma.AccessRemoteRead}), false)
	f.Fuzz(func(t *testing.T, b []byte, aim bool) {
		if len(b) < descriptorLen {
			return // the plan says how long it is
		}
		d := readDescriptor(b)
		if string(bytesOf(d)) != string(b[:descriptorLen]) {
			t.Errorf("%x reads as %+v, which is written as %x", b[:descriptorLen], d, bytesOf(d))
		}
		off := d.addr
		if aim {
			d.addr, d.rkey = r.region.Addr()+off, r.region.RKey()
		}
		mem := r.w.view(0, &d)
		whole := r.region.Bytes()
		inside := aim && off <= uint64(len(whole)) && d.n <= uint64(len(whole))-off && d.access == rdma.AccessRemoteRead
		switch {
		case !aim:
			return // a key that happens to be right is found by chance alone, and is right
		case d.n > 0 && (mem != nil) != inside: // of no bytes there may be a slice or none
			t.Errorf("%+v at %d of %d bytes is mapped: %t, want %t", d, off, len(whole), mem != nil, inside)
		case len(mem) > 0 && (&mem[0] != &whole[off] || uint64(len(mem)) != d.n || uint64(cap(mem)) != d.n):
			t.Errorf("%+v is mapped as %d bytes, elsewhere", d, len(mem))
		}
	})
}
