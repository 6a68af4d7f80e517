package soft

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
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
	id := h.Sum(nil)
	copy(gids[0][:], []byte{0xfe, 0x80})
	copy(gids[0][8:], id[:8])
	gids[1][0] = 0xfd
	copy(gids[1][8:], id[:8])
	return gids
}

// nodeGUID is that of a device of this machine, the same in each process: an EUI-64 that is administered locally.
func nodeGUID(name string) uint64 {
	node, _ := os.Hostname()
	id := sha256.Sum256(fmt.Appendf(nil, "gorun soft node\n%q %q\n", node, name))
	return binary.BigEndian.Uint64(id[:])&^(3<<56) | 2<<56
}

// endpoint is what a provider tells its peers, in this order on the wire:
//
//	version, 1 or 2 | rank u32 | pid u32 | started u64 | probe u64 | nonce 16 | host u8+n | address u8+n
//
// all little-endian. Version 2 encrypts its connections.
type endpoint struct {
	rank    uint32
	pid     uint32
	started uint64 // of the process, in clock ticks since boot; 0 unknown
	probe   uint64 // address of nonce in the process
	nonce   [16]byte
	host    string
	address string // for TCP, "" for none
	secure  bool   // its connections are encrypted
}

const (
	endpointVersion = 1
	endpointSecure  = 2
	endpointFixed   = 1 + 4 + 4 + 8 + 8 + 16
)

var errEndpoint = errors.New("not an endpoint of package soft")

func (e *endpoint) append(b []byte) []byte {
	version := byte(endpointVersion)
	if e.secure {
		version = endpointSecure
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
	if len(b) < endpointFixed || b[0] != endpointVersion && b[0] != endpointSecure {
		return e, errEndpoint
	}
	e.secure = b[0] == endpointSecure
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
		e.address, e.secure = n.address, n.secure != nil
	}
	return e
}
