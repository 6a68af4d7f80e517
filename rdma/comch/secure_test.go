package comch

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// secured has both ends of a connection secure it.
func secured(t *testing.T, server, client Config) (s, c net.Conn, serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, serverErr = Secure(limit(t), server, a, true)
	}()
	c, clientErr = Secure(limit(t), client, b, false)
	<-done
	return s, c, serverErr, clientErr
}

// Both ends have the key: bytes go both ways, and are not those on the connection.
func TestSecureConnection(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := Config{Name: "n", Key: bytes.Repeat([]byte("k"), MinKey)}
	s, c, serverErr, clientErr := secured(t, cfg, cfg)
	if serverErr != nil || clientErr != nil {
		t.Fatal(serverErr, clientErr)
	}
	go func() { _, _ = io.Copy(s, s) }() // ends with the connection
	if _, err := c.Write([]byte("message")); err != nil {
		t.Error(err)
	}
	b := make([]byte, 7)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "message" {
		t.Errorf("%q came back, %v", b, err)
	}
	_ = c.Close()
	_ = s.Close()
}

// Without the same key and name the connection is closed, and both ends know.
func TestSecureRefuses(t *testing.T) {
	testenv.NoLeaks(t)
	key, other := bytes.Repeat([]byte("k"), MinKey), bytes.Repeat([]byte("o"), MinKey)
	for name, client := range map[string]Config{"key": {Name: "n", Key: other}, "name": {Name: "m", Key: key}} {
		if _, _, s, c := secured(t, Config{Name: "n", Key: key}, client); !errors.Is(s, ErrRefused) || !errors.Is(c, ErrRefused) {
			t.Errorf("another %s: %v and %v, want both %v", name, s, c, ErrRefused)
		}
	}
	a, b := net.Pipe()
	if _, err := Secure(limit(t), Config{}, a, true); !errors.Is(err, ErrNoKey) {
		t.Errorf("no key: %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is open after a failure: %v", err)
	}
}
