package soft

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/gorun-mpi/gorun/rdma"
)

// gidTable is the length of a port's GID table: a link-local one and a unique
// local one, which serve alike.
const gidTable = 2

// gidsOf makes the GIDs of one life of a rank's arena.
func gidsOf(host string, rank int, nonce [16]byte) (gids [gidTable]rdma.GID) {
	h := sha256.New()
	fmt.Fprintf(h, "gorun soft gid\n%q %d\n", host, rank)
	h.Write(nonce[:])
	return gidsFrom([8]byte(h.Sum(nil)))
}

// gidsFrom makes the GIDs of an id.
func gidsFrom(id [8]byte) (gids [gidTable]rdma.GID) {
	copy(gids[0][:], []byte{0xfe, 0x80})
	copy(gids[0][8:], id[:])
	gids[1][0] = 0xfd
	copy(gids[1][8:], id[:])
	return gids
}

// locate writes where a provider listens into its GIDs, between the first two bytes and the last eight:
//
//	fe 80 | port u16 | IPv4 address 4 | id 8
//	fd 00 | the same
//
// in the network's order. A connection is made to any process that listens there; that it has the GID, its handshake tells.
func locate(gids [gidTable]rdma.GID, at netip.AddrPort) [gidTable]rdma.GID {
	for i := range gids {
		ip := at.Addr().As4()
		binary.BigEndian.PutUint16(gids[i][2:], at.Port())
		copy(gids[i][4:], ip[:])
	}
	return gids
}

// located gives the endpoint that a GID tells of, and all GIDs of its provider; false: it tells of none.
func located(gid rdma.GID) (e endpoint, gids [gidTable]rdma.GID, ok bool) {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte(gid[4:])), binary.BigEndian.Uint16(gid[2:]))
	gids = locate(gidsFrom([8]byte(gid[8:])), at)
	return endpoint{located: true, address: at.String()}, gids, at.Port() != 0 && (gid == gids[0] || gid == gids[1])
}

// nodeGUID is that of a device of this machine, the same in each process: an EUI-64 that is administered locally.
func nodeGUID(name string) uint64 {
	node, _ := os.Hostname()
	id := sha256.Sum256(fmt.Appendf(nil, "gorun soft node\n%q %q\n", node, name))
	return binary.BigEndian.Uint64(id[:])&^(3<<56) | 2<<56
}

// endpoint is what a provider tells its peers, in this order on the wire:
//
//	version | rank u32 | pid u32 | started u64 | probe u64 | nonce 16 | host u8+n | address u8+n
//
// all little-endian. Version 2 encrypts its connections; 4 more: its GIDs say where it listens.
type endpoint struct {
	rank    uint32
	pid     uint32
	started uint64 // of the process, in clock ticks since boot; 0 unknown
	probe   uint64 // address of nonce in the process
	nonce   [16]byte
	host    string
	address string // for TCP, "" for none
	secure  bool   // its connections are encrypted
	located bool   // its GIDs have the address
}

const (
	endpointVersion = 1
	endpointSecure  = 2
	endpointLocated = 4 // added to one of them
	endpointFixed   = 1 + 4 + 4 + 8 + 8 + 16
)

var errEndpoint = errors.New("not an endpoint of package soft")

func (e *endpoint) append(b []byte) []byte {
	version := byte(endpointVersion)
	if e.secure {
		version = endpointSecure
	}
	if e.located {
		version += endpointLocated
	}
	b = append(b, version)
	b = binary.LittleEndian.AppendUint32(b, e.rank)
	b = binary.LittleEndian.AppendUint32(b, e.pid)
	b = binary.LittleEndian.AppendUint64(b, e.started)
	b = binary.LittleEndian.AppendUint64(b, e.probe)
	b = append(b, e.nonce[:]...)
	b = append(append(b, byte(len(e.host))), e.host...)
	return append(append(b, byte(len(e.address))), e.address...)
}

// parseEndpoint reads what append wrote, from any sender.
func parseEndpoint(b []byte) (e endpoint, err error) {
	if len(b) < endpointFixed {
		return e, errEndpoint
	}
	version := b[0] &^ endpointLocated
	if version != endpointVersion && version != endpointSecure {
		return e, errEndpoint
	}
	e.secure, e.located = version == endpointSecure, version != b[0]
	e.rank = binary.LittleEndian.Uint32(b[1:])
	e.pid = binary.LittleEndian.Uint32(b[5:])
	e.started = binary.LittleEndian.Uint64(b[9:])
	e.probe = binary.LittleEndian.Uint64(b[17:])
	copy(e.nonce[:], b[25:])
	b = b[endpointFixed:]
	for _, s := range []*string{&e.host, &e.address} {
		if len(b) < 1 || len(b)-1 < int(b[0]) {
			return e, errEndpoint
		}
		end := 1 + int(b[0])
		*s = string(b[1:end])
		b = b[end:]
	}
	if len(b) != 0 {
		return e, errEndpoint
	}
	return e, nil
}

// gids are those of the provider behind e.
func (e *endpoint) gids() ([gidTable]rdma.GID, error) {
	gids := gidsOf(e.host, int(e.rank), e.nonce)
	if !e.located {
		return gids, nil
	}
	at, err := netip.ParseAddrPort(e.address)
	if err != nil || !at.Addr().Is4() {
		return gids, errEndpoint
	}
	return locate(gids, at), nil
}

// endpointHost shortens a host's name to what fits an endpoint.
func endpointHost(host string) string {
	if len(host) <= 64 {
		return host
	}
	sum := sha256.Sum256([]byte(host))
	return fmt.Sprintf("%.24s %x", host, sum[:16])
}

// endpoint is the provider's own.
func (p *Provider) endpoint() endpoint {
	e := endpoint{
		rank: uint32(p.cfg.Rank), pid: uint32(os.Getpid()), started: processStart(os.Getpid()),
		probe: addressOf(p.probe[:]), nonce: *p.probe, host: p.host,
	}
	if n := p.tcp.Load(); n != nil {
		e.address, e.secure, e.located = n.address, n.secure != nil, p.cfg.Located
	}
	return e
}
