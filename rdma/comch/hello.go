package comch

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/internal/tlskey"
)

// On one host the ends agree over a Unix socket of whole packets, in msgpack:
//
//	client                                    server
//	hello{nonce, keyed, its queue}   ------>
//	                                 <------  hello{nonce, keyed, its queue, proof}
//	hello{proof}                     ------>
//	                                 <------  hello{} with the memfd
//
// Either side refuses the other by a hello with the reason. A proof is an HMAC, under the
// key, of the role and both nonces and queues: a peer without the key can neither make
// one nor use an old one. Without a key proofs are empty; the kernel has said whose
// the other end is before any of this.
type hello struct {
	Protocol string   `msgpack:"protocol"`
	Refused  string   `msgpack:"refused,omitempty"`
	Nonce    []byte   `msgpack:"nonce,omitempty"`
	Keyed    bool     `msgpack:"keyed,omitempty"`
	Queue    geometry `msgpack:"queue"` // to the other end
	Proof    []byte   `msgpack:"proof,omitempty"`
}

const (
	nonceLen = 32
	maxHello = 1024
)

func newHello(cfg *Config) hello {
	h := hello{Protocol: protocol, Nonce: make([]byte, nonceLen), Keyed: cfg.Key != nil, Queue: cfg.geometry()}
	rand.Read(h.Nonce)
	return h
}

func (h hello) pack() ([]byte, error) { return pack.Marshal(h) }

// parseHello reads what a peer sent. Its queue is judged by check.
func parseHello(b []byte) (hello, error) {
	var h hello
	if len(b) > maxHello {
		return h, fmt.Errorf("%w: %d bytes", ErrForged, len(b))
	}
	if err := pack.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("%w: %w", ErrForged, err)
	}
	switch {
	case h.Refused != "":
		return h, fmt.Errorf("%w by the peer: %.200q", ErrRefused, h.Refused)
	case h.Protocol != protocol:
		return h, fmt.Errorf("%w: the peer speaks %.40q, expected %q", ErrRefused, h.Protocol, protocol)
	}
	return h, nil
}

// check judges the first hello of a peer.
func (h *hello) check(cfg *Config) error {
	switch {
	case len(h.Nonce) != nonceLen:
		return fmt.Errorf("%w: a nonce of %d bytes", ErrForged, len(h.Nonce))
	case h.Keyed && cfg.Key == nil:
		return fmt.Errorf("%w: the peer has a key and this end has none; give both the same, or neither", ErrRefused)
	case !h.Keyed && cfg.Key != nil:
		return fmt.Errorf("%w: this end has a key and the peer has none; give both the same, or neither", ErrRefused)
	}
	return h.Queue.check()
}

// proof shows that an end knows the key. client and server are the first hellos.
func proof(key []byte, role tlskey.Role, client, server hello) ([]byte, error) {
	if key == nil {
		return nil, nil
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(protocol + " proof of the " + role + "\x00"))
	for _, h := range []hello{client, server} {
		h.Proof = nil
		b, err := h.pack()
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		mac.Write(sum[:])
	}
	return mac.Sum(nil), nil
}

// prove checks the peer's proof.
func prove(key []byte, role tlskey.Role, client, server hello, got []byte) error {
	want, err := proof(key, role, client, server)
	if err != nil {
		return err
	}
	if !hmac.Equal(want, got) {
		return fmt.Errorf("%w: the peer has another key", ErrRefused)
	}
	return nil
}
