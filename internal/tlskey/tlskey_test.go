package tlskey

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
)

func config(t testing.TB, key byte, protocol, name string, role Role) *tls.Config {
	t.Helper()
	tc, err := Config([]byte{31: key}, protocol, name, role)
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

// shake has both ends of a connection shake hands.
func shake(t testing.TB, server, client *tls.Config) (s, c *tls.Conn, serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s, serverErr = Handshake(context.Background(), a, server, Server); serverErr != nil {
			a.Close()
		}
	}()
	if c, clientErr = Handshake(context.Background(), b, client, Client); clientErr != nil {
		b.Close()
	}
	<-done
	return s, c, serverErr, clientErr
}

// Only an end of the same key, protocol and name, and of the other role, is let in, by both.
func TestHandshake(t *testing.T) {
	server := config(t, 1, "p/1", "n", Server)
	for name, c := range map[string]struct {
		client *tls.Config
		good   bool
	}{
		"the same":         {config(t, 1, "p/1", "n", Client), true},
		"another key":      {config(t, 2, "p/1", "n", Client), false},
		"another protocol": {config(t, 1, "p/2", "n", Client), false},
		"another name":     {config(t, 1, "p/1", "m", Client), false},
		"another server":   {config(t, 1, "p/1", "n", Server), false},
	} {
		s, cl, serverErr, clientErr := shake(t, server, c.client)
		if (serverErr == nil) != c.good || (clientErr == nil) != c.good {
			t.Errorf("%s: server %v, client %v; want both to agree: %v", name, serverErr, clientErr, c.good)
			continue
		}
		if !c.good {
			continue
		}
		go func() { _, _ = cl.Write([]byte("text")) }()
		b := make([]byte, 4)
		if _, err := io.ReadFull(s, b); err != nil || string(b) != "text" {
			t.Errorf("%s: %q arrived, %v", name, b, err)
		}
	}
}

func BenchmarkHandshake(b *testing.B) {
	server, client := config(b, 1, "p/1", "n", Server), config(b, 1, "p/1", "n", Client)
	for b.Loop() {
		if _, _, s, c := shake(b, server, client); s != nil || c != nil {
			b.Fatal(s, c)
		}
	}
}
