// Package tlskey is TLS 1.3 between two ends that know one key.
//
// Go's TLS has no external pre-shared keys, so each end proves by a certificate that it
// knows the key: from key and name both derive, by HKDF, the same two ECDSA key pairs on P-256, one for
// the server and one for the client. An end shows the certificate of its role and accepts
// no public key but that of the other role.
//
// Why that is sound: HKDF-SHA256 of a secret with enough entropy is indistinguishable from a
// random string, so only an end that knows the key can compute the private keys; TLS 1.3
// has each end sign the whole handshake with its own, so the proof is of this connection
// and cannot be replayed or passed on. The roles have different keys, so that nothing an
// end has signed can be sent back to it. The protocol and the name are part of the derivation: who may
// enter one channel of a key still cannot be led into another. Each connection has its own
// ephemeral secrets, so that a key that leaks later opens nothing recorded before. The
// certificates' other fields mean nothing and are looked at by nobody: there is no
// authority, and no clock that must be right.
package tlskey

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"
)

// A Role is one end's part in the handshake.
type Role string

// The roles of the two ends.
const (
	Server Role = "server"
	Client Role = "client"
)

func (r Role) other() Role {
	if r == Server {
		return Client
	}
	return Server
}

// signer is the key pair of a role. It is of P-256, whose tables Go's library has in its program: those of
// Ed25519 are made at the first use, which takes as long as all the rest of a first handshake.
func signer(key []byte, protocol, name string, role Role) (*ecdsa.PrivateKey, error) {
	curve := elliptic.P256()
	// With 128 bits more than the order has, the remainder is as good as uniform (FIPS 186-5, A.2.1).
	seed, err := hkdf.Key(sha256.New, key, []byte(protocol), "tls identity\x00"+string(role)+"\x00"+name, 48)
	if err != nil {
		return nil, err
	}
	one := big.NewInt(1)
	d := new(big.Int).SetBytes(seed)
	d.Mod(d, new(big.Int).Sub(curve.Params().N, one)).Add(d, one)
	return ecdsa.ParseRawPrivateKey(curve, d.FillBytes(make([]byte, 32)))
}

// Config is that of one end. Both ends give the same key, of random bytes, the same protocol, which
// is also that of ALPN, and the same name.
func Config(key []byte, protocol, name string, role Role) (*tls.Config, error) {
	own, err := signer(key, protocol, name, role)
	if err != nil {
		return nil, err
	}
	theirs, err := signer(key, protocol, name, role.other())
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, own.Public(), own)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no authority to verify against: VerifyConnection pins the key instead, in
		// every handshake, and both sides need it.
		InsecureSkipVerify:          true,
		VerifyConnection:            func(s tls.ConnectionState) error { return pinned(s, protocol, &theirs.PublicKey) },
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}, nil
}

// pinned accepts a peer that has shown the public key that was expected of it.
func pinned(s tls.ConnectionState, protocol string, want *ecdsa.PublicKey) error {
	if s.NegotiatedProtocol != protocol {
		return fmt.Errorf("the peer speaks %q, expected %q", s.NegotiatedProtocol, protocol)
	}
	if len(s.PeerCertificates) != 1 {
		return errors.New("the peer has shown no certificate")
	}
	if got, ok := s.PeerCertificates[0].PublicKey.(*ecdsa.PublicKey); !ok || !want.Equal(got) {
		return errors.New("the peer has another key, or another name for the channel")
	}
	return nil
}

// Handshake makes the connection of one end out of conn, until ctx ends. The server tells
// the client that it accepts it: a client's handshake ends before the server has seen its
// certificate. An error leaves conn to be closed.
func Handshake(ctx context.Context, conn net.Conn, tc *tls.Config, role Role) (*tls.Conn, error) {
	var secure *tls.Conn
	if role == Server {
		secure = tls.Server(conn, tc)
	} else {
		secure = tls.Client(conn, tc)
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = secure.SetDeadline(time.Unix(1, 0)) })()
	var b [1]byte
	var err error
	if role == Server {
		_, err = secure.Write(b[:])
	} else {
		_, err = io.ReadFull(secure, b[:])
	}
	return secure, err
}
