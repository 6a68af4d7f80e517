package soft

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// The handshake of a TCP link proves to both sides that the other knows the
// job's secret, without saying it:
//
//	dialler: magic 16 | nonce 32 | own GID 16 | wanted GID 16
//	listener:                                             nonce 32 | proof 32
//	dialler: proof 32 | carried: own endpoint u16+n
//	both, with Config.Secure, which has a magic of its own: the handshake of TLS, and the verdict under it
//	listener:                                             verdict 1
//
// A greeting over a connection that is carried (Config.Detour) has a magic of its own, and tells where the dialler listens.
//
// A proof is HMAC-SHA256 with the secret over the prover's role and all that
// was said before it. A recorded one is of no use: each side's nonce is new. The verdict
// says that the listener has kept the connection, which it may not when
// many want in at once: a link that is up stays up. Or it says that the listener is
// dialling the dialler, whose own connection is therefore not wanted.
const (
	helloSize = 16 + 32 + 16 + 16
	replySize = 32 + 32
	proofSize = 32
	// handshakeLimit bounds all of it, on both sides.
	handshakeLimit = 5 * time.Second
)

// A stream is a connection whose calls end at a deadline.
type stream interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

var (
	helloMagic  = [16]byte([]byte("gorun soft rdma1"))
	secureMagic = [16]byte([]byte("gorun soft tls 1"))
)

// magicOf is how a greeting begins.
func magicOf(secure Handshake, isCarried bool) [16]byte {
	magic := helloMagic
	if secure != nil {
		magic = secureMagic
	}
	if isCarried {
		magic[15] = 'c'
	}
	return magic
}

// What the verdict says.
const (
	saidKept byte = 1 + iota
	saidCrossed
)

// errCrossed: the peer's own connection is, or will be, the link.
var errCrossed = errors.New("the other side dials this one at the same time")

var errStranger = errors.New("the other side does not know the job's secret")

func proof(secret []byte, role string, said ...[]byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("gorun soft rdma " + role + "\n"))
	for _, s := range said {
		m.Write(s)
	}
	return m.Sum(nil)
}

// greet is the dialler's side. It gives the encryption, nil if secure is. carried is the dialler's endpoint, where the connection is carried; else nil.
func greet(c stream, secret []byte, secure Handshake, own, wanted rdma.GID, carried []byte) (seal Sealer, err error) {
	if err := c.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
		return nil, err
	}
	hello := make([]byte, helloSize)
	magic := magicOf(secure, carried != nil)
	copy(hello, magic[:])
	if _, err := rand.Read(hello[16:48]); err != nil {
		return nil, err
	}
	copy(hello[48:], own[:])
	copy(hello[64:], wanted[:])
	if _, err := c.Write(hello); err != nil {
		return nil, err
	}
	reply := make([]byte, replySize)
	if _, err := io.ReadFull(c, reply); err != nil {
		return nil, fmt.Errorf("the other side sent no proof that it knows the secret: %w", err)
	}
	if !hmac.Equal(reply[32:], proof(secret, "listener", hello, reply[:32])) {
		return nil, errStranger
	}
	said := proof(secret, "dialler", hello, reply, carried)
	if carried != nil {
		said = append(binary.LittleEndian.AppendUint16(said, uint16(len(carried))), carried...)
	}
	if _, err := c.Write(said); err != nil {
		return nil, err
	}
	if secure != nil {
		if seal, err = secure(c, secret, string(hello)+string(reply), false); err == nil {
			reply[0], err = awaitSealed(c, seal)
		}
	} else {
		_, err = io.ReadFull(c, reply[:1])
	}
	if err != nil {
		return nil, fmt.Errorf("the other side sent no verdict: %w", err)
	}
	switch reply[0] {
	case saidKept:
	case saidCrossed:
		return nil, errCrossed
	default:
		return nil, fmt.Errorf("found the verdict %d, expected %d or %d", reply[0], saidKept, saidCrossed)
	}
	return seal, c.SetDeadline(time.Time{})
}

// A guest is who has dialled.
type guest struct {
	gid     rdma.GID
	seal    Sealer // nil: it is not encrypted
	carried []byte // its endpoint, where the connection is carried; else nil
}

// welcome is the listener's side, up to the last byte, which say sends. It calls proven when the dialler
// has proved that it knows the secret, and ends with its error.
func welcome(c stream, secret []byte, secure Handshake, own [gidTable]rdma.GID, proven func() error) (from guest, err error) {
	if err := c.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
		return from, err
	}
	hello := make([]byte, helloSize)
	if _, err := io.ReadFull(c, hello); err != nil {
		return from, err
	}
	isCarried := [16]byte(hello[:16]) == magicOf(secure, true)
	if !isCarried && [16]byte(hello[:16]) != magicOf(secure, false) {
		return from, fmt.Errorf("found a greeting of %q, expected %q", hello[:16], magicOf(secure, false))
	}
	if wanted := rdma.GID(hello[64:]); wanted != own[0] && wanted != own[1] {
		return from, fmt.Errorf("the greeting is for %v, which is not this process's", wanted)
	}
	reply := make([]byte, replySize)
	if _, err := rand.Read(reply[:32]); err != nil {
		return from, err
	}
	copy(reply[32:], proof(secret, "listener", hello, reply[:32]))
	if _, err := c.Write(reply); err != nil {
		return from, err
	}
	theirs := make([]byte, proofSize)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return from, err
	}
	if isCarried {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return from, err
		}
		from.carried = make([]byte, binary.LittleEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, from.carried); err != nil {
			return from, err
		}
	}
	if !hmac.Equal(theirs, proof(secret, "dialler", hello, reply, from.carried)) {
		return from, errStranger
	}
	if err := proven(); err != nil {
		return from, err
	}
	if secure != nil {
		if from.seal, err = secure(c, secret, string(hello)+string(reply), true); err != nil {
			return from, err
		}
	}
	from.gid = rdma.GID(hello[48:64])
	return from, c.SetDeadline(time.Time{})
}

// say ends the listener's side.
func say(c stream, seal Sealer, verdict byte) error {
	b := []byte{verdict}
	if seal != nil {
		var err error
		if b, err = seal.Seal(nil, [][]byte{b}); err != nil {
			return err
		}
	}
	_, err := c.Write(b)
	return err
}
