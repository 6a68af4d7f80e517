package gossip

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
)

// A prover begins connections with a proof of the job's key, and checks it:
//
//	magic 8 | random 16 | HMAC-SHA256(key, magic, random, address of the called node) 32
//
// It holds for one address. An attacker that reads the network can repeat it there, and can
// then make memberlist read up to 20 MiB that it will not accept; without the key
// nobody else can.
type prover struct{ key []byte }

const (
	magic     = "gorunkey"
	nonceSize = 16
	proofSize = len(magic) + nonceSize + sha256.Size
)

// refusal answers a proof of another key. No message of memberlist begins like it.
const refusal = "gorun: the key differs\n"

// proof is what a connection to an address begins with.
func (p prover) proof(address string) []byte {
	b := make([]byte, len(magic)+nonceSize, proofSize)
	copy(b, magic)
	rand.Read(b[len(magic):]) // it never fails
	return p.sum(b, address)
}

func (p prover) sum(b []byte, address string) []byte {
	h := hmac.New(sha256.New, p.key)
	h.Write(b)
	h.Write([]byte(address))
	return h.Sum(b)
}

// check reads a proof, and tells whether it is of this key, for this address. The word
// about another key is given time to arrive: a connection that is closed with bytes
// unread may lose it.
func (p prover) check(c net.Conn, self string) bool {
	var got [proofSize]byte
	if _, err := io.ReadFull(c, got[:]); err != nil || !bytes.HasPrefix(got[:], []byte(magic)) {
		return false
	}
	if hmac.Equal(got[:], p.sum(got[:len(magic)+nonceSize:len(magic)+nonceSize], self)) {
		return true
	}
	if _, err := c.Write([]byte(refusal)); err == nil {
		const unread = 1 << 20
		_, _ = io.CopyN(io.Discard, c, unread)
	}
	return false
}

// refused tells whether an answer begins with the word about another key.
func refused(b []byte) bool { return bytes.HasPrefix(b, []byte(refusal)) }
