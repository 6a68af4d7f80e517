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
// The magic says what the connection is for. The proof holds for one address. An attacker that reads
// the network can repeat it there, and can then make memberlist read up to 20 MiB that it will not
// accept, or begin a handshake of TLS that it cannot end; without the key nobody else can.
type prover struct{ key []byte }

const (
	magicMember = "gorunkey" // for memberlist
	magicFence  = "gorunfnc" // a branch of the tree
	magicSize   = len(magicMember)
	nonceSize   = 16
	proofSize   = magicSize + nonceSize + sha256.Size
)

// refusal answers a proof of another key. No message of memberlist begins like it.
const refusal = "gorun: the key differs\n"

// proof is what a connection to an address begins with.
func (p prover) proof(magic, address string) []byte {
	b := make([]byte, magicSize+nonceSize, proofSize)
	copy(b, magic)
	rand.Read(b[magicSize:]) // it never fails
	return p.sum(b, address)
}

func (p prover) sum(b []byte, address string) []byte {
	h := hmac.New(sha256.New, p.key)
	h.Write(b)
	h.Write([]byte(address))
	return h.Sum(b)
}

// check reads a proof, and tells what it is for, if it is of this key, for this address; "" if
// it is not. The word about another key is given time to arrive: a connection that is closed with
// bytes unread may lose it.
func (p prover) check(c net.Conn, self string) (magic string) {
	var got [proofSize]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return ""
	}
	magic = string(got[:magicSize])
	if magic != magicMember && magic != magicFence {
		return ""
	}
	if hmac.Equal(got[:], p.sum(got[:magicSize+nonceSize:magicSize+nonceSize], self)) {
		return magic
	}
	if _, err := c.Write([]byte(refusal)); err == nil {
		const unread = 1 << 20
		_, _ = io.CopyN(io.Discard, c, unread)
	}
	return ""
}

// refused tells whether an answer begins with the word about another key.
func refused(b []byte) bool { return bytes.HasPrefix(b, []byte(refusal)) }
