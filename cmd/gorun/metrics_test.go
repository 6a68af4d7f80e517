package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher"
)

// What is answered to a request.
func TestMetricsAnswers(t *testing.T) {
	text := func() string { return "figures 1\n" }
	for _, c := range []struct{ name, head, status, body string }{
		{"as curl asks", "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200", "figures 1\n"},
		{"with a query", "GET /metrics?x=1 HTTP/1.0\n\n", "200", "figures 1\n"},
		{"the head only", "HEAD /metrics HTTP/1.1\r\n\r\n", "200", ""},
		{"elsewhere", "GET / HTTP/1.1\r\n\r\n", "404", "the metrics are at /metrics\n"},
		{"another method", "POST /metrics HTTP/1.1\r\n\r\n", "405", "only GET and HEAD\n"},
		{"another protocol", "hello\n\n", "400", "this is no request of HTTP/1\n"},
		{"nothing", "\n\n", "400", "this is no request of HTTP/1\n"},
	} {
		got := string(answer([]byte(c.head), true, text))
		if !strings.HasPrefix(got, "HTTP/1.1 "+c.status+" ") || !strings.HasSuffix(got, "\r\n\r\n"+c.body) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if got := string(answer(bytes.Repeat([]byte("x"), requestMax+1), false, text)); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("too long: %q", got)
	}
}

// Whatever is asked, the answer is one of HTTP that net/http understands.
func FuzzMetricsAnswer(f *testing.F) {
	for _, seed := range []string{"GET /metrics HTTP/1.1\r\n\r\n", "HEAD /metrics HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\n\n", "\n\n", "GET  HTTP/1.1\n\n", "\x00\xff\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		raw := answer(head, headEnds(head), func() string { return "figures 1\n" })
		method := http.MethodGet
		if bytes.HasPrefix(bytes.TrimLeft(head, " \t\v\f\r\u0085\u00a0"), []byte("HEAD")) && !bytes.Contains(raw, []byte("\r\n\r\nt")) {
			method = http.MethodHead
		}
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		defer r.Body.Close()
		if body, err := io.ReadAll(r.Body); err != nil || r.StatusCode == 200 && method == http.MethodGet && string(body) != "figures 1\n" {
			t.Fatalf("%q: %q, %v", raw, body, err)
		}
	})
}

// The server ends with those who ask nothing still there, and more of them than
// it lets in at once.
func TestMetricsEnd(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	m, err := newMeter("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.serve(func() launcher.Stats { return launcher.Stats{Restarts: 7} })
	response, err := http.Get(m.address())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(body), "gorun_restarts_total 7\n") || response.Header.Get("Content-Type") != launcher.PrometheusType {
		t.Errorf("%q, %v, %v", body, response.Header, err)
	}
	for range askersMax + 4 {
		conn, err := net.Dial("tcp", m.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("GET /metrics")); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	m.close()
	if took := time.Since(begun); took > requestTime/2 {
		t.Errorf("the end took %v", took)
	}
	if _, err := net.Dial("tcp", m.listener.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// Connections that ask nothing, or half a question, keep nobody from asking.
func TestMetricsBesideIdleConnections(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	m, err := newMeter("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.serve(func() launcher.Stats { return launcher.Stats{Restarts: 7} })
	defer m.close()
	for i := range 4 * askersMax {
		conn, err := net.Dial("tcp", m.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write([]byte("GET /metrics")) // it may be closed already
		}
	}
	begun := time.Now()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(m.address())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || !strings.Contains(string(body), "gorun_restarts_total 7\n") {
		t.Errorf("%q, %v", body, err)
	}
	if took := time.Since(begun); took > requestTime/2 {
		t.Errorf("the answer took %v", took)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.askers) > askersMax {
		t.Errorf("%d connections are open, %d at most", len(m.askers), askersMax)
	}
}

// A port that somebody has is an error that says so.
func TestMetricsPortTaken(t *testing.T) {
	m, err := newMeter("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer m.listener.Close()
	var out, errs bytes.Buffer
	addr := m.listener.Addr().String()
	status := run(t.Context(), commandLine{name: "gorun", args: []string{"--metrics", addr, "-np", "1", "true"}}, stdio{strings.NewReader(""), &out, &errs})
	if status != statusFailed || !strings.Contains(errs.String(), "gorun: --metrics "+addr+": bind: address already in use; try another port") {
		t.Errorf("status %d, %q", status, errs.String())
	}
}
