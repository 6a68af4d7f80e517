package comch

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// The two ends of a channel between hosts know one secret, the key. Go's TLS has no
// external pre-shared keys, so each end proves by a certificate that it knows the
// key: from key and name both derive, by HKDF, the same two Ed25519 key pairs, one for the
// server and one for the client. An end shows the certificate of its role and accepts
// no public key but that of the other role.
//
// Why that is sound: HKDF-SHA256 of a secret with enough entropy is indistinguishable from a
// random string, so only an end that knows the key can compute the private keys; TLS 1.3
// has each end sign the whole handshake with its own, so the proof is of this connection
// and cannot be replayed or passed on. The roles have different keys, so that nothing an
// end has signed can be sent back to it. The name is part of the derivation: who may
// enter one channel of a key still cannot be led into another. Each connection has its own
// ephemeral secrets, so that a key that leaks later opens nothing recorded before. The
// certificates' other fields mean nothing and are looked at by nobody: there is no
// authority, and no clock that must be right.

const (
	roleServer = "server"
	roleClient = "client"
)

// protocol is what both ends must speak, in ALPN and in the hello of one host.
const protocol = "gorun-comch/1"

// signer is the key pair of a role.
func signer(key []byte, name, role string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, key, []byte(protocol), "tls identity\x00"+role+"\x00"+name, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// tlsConfig is that of one end.
func tlsConfig(cfg *Config, role string) (*tls.Config, error) {
	other := roleServer
	if role == roleServer {
		other = roleClient
	}
	own, err := signer(cfg.Key, cfg.Name, role)
	if err != nil {
		return nil, err
	}
	theirs, err := signer(cfg.Key, cfg.Name, other)
	if err != nil {
		return nil, err
	}
	want := theirs.Public().(ed25519.PublicKey)
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
		VerifyConnection:            func(s tls.ConnectionState) error { return pinned(s, want) },
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}, nil
}

// pinned accepts a peer that has shown the public key that was expected of it.
func pinned(s tls.ConnectionState, want ed25519.PublicKey) error {
	if s.NegotiatedProtocol != protocol {
		return fmt.Errorf("the peer speaks %q, expected %q", s.NegotiatedProtocol, protocol)
	}
	if len(s.PeerCertificates) != 1 {
		return errors.New("the peer has no certificate of a channel")
	}
	if got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !want.Equal(got) {
		return errors.New("the peer has another key, or another name for the channel")
	}
	return nil
}
