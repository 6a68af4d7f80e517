package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/launcher"
)

// --metrics ADDR answers GET /metrics with the job's figures while it runs. HTTP
// is spoken here and not by net/http, which would make gorun start 0.3 ms later
// (2.5 ms instead of 2.2, medians of 150) and its file twice as large, for
// everybody; the libraries for Prometheus import it too. What is needed is one
// request a connection.

// Bounds of clients that ask.
const (
	askersMax   = 64               // at once; the next one takes the place of the oldest
	requestMax  = 16 << 10         // bytes of a request's head
	requestTime = 10 * time.Second // for a request and its answer
	acceptPause = 100 * time.Millisecond
)

// meter is the server.
type meter struct {
	listener net.Listener
	figures  func() launcher.Stats

	workers sync.WaitGroup // those of askers, and the one that lets them in

	mu     sync.Mutex
	askers []net.Conn // the oldest first
	closed bool
}

// newMeter listens; serve begins to answer.
func newMeter(addr string) (*meter, error) {
	l, err := net.Listen("tcp", addr)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // the rest is known
	}
	if err != nil {
		return nil, fmt.Errorf("%w; try another port, or 0 for one that is free", err)
	}
	return &meter{listener: l}, nil
}

// address is where it listens, for people.
func (m *meter) address() string { return "http://" + m.listener.Addr().String() + "/metrics" }

func (m *meter) serve(figures func() launcher.Stats) {
	m.figures = figures
	m.workers.Go(func() {
		for {
			conn, err := m.listener.Accept()
			if err != nil && !m.over() {
				// Out of descriptors, perhaps: the metrics are not worth a job.
				time.Sleep(acceptPause)
				continue
			}
			if err != nil || !m.enter(conn) {
				return
			}
			m.workers.Go(func() {
				m.talk(conn)
				m.leave(conn)
			})
		}
	})
}

func (m *meter) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// enter makes a connection one that close ends. One that has asked is answered within
// milliseconds, so the oldest of many is one that does not ask.
func (m *meter) enter(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		conn.Close()
		return false
	}
	if len(m.askers) == askersMax {
		m.askers[0].Close()
		m.askers = slices.Delete(m.askers, 0, 1)
	}
	m.askers = append(m.askers, conn)
	return true
}

func (m *meter) leave(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.Index(m.askers, conn); at >= 0 {
		m.askers = slices.Delete(m.askers, at, at+1)
	}
	conn.Close()
}

// close ends all connections and waits for their goroutines.
func (m *meter) close() {
	m.mu.Lock()
	m.closed = true
	m.listener.Close()
	for _, conn := range m.askers {
		conn.Close()
	}
	m.mu.Unlock()
	m.workers.Wait()
}

// talk reads a request and answers it.
func (m *meter) talk(conn net.Conn) {
	if err := conn.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return
	}
	var head []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := conn.Read(buf)
		head = append(head, buf[:n]...)
		whole := headEnds(head)
		switch {
		case whole || len(head) > requestMax:
			_, _ = conn.Write(answer(head, whole, m.text)) // the client may be gone
			return
		case err != nil:
			return
		}
	}
}

func (m *meter) text() string {
	var b strings.Builder
	_ = m.figures().WritePrometheus(&b) // into memory
	return b.String()
}

// headEnds tells whether all of a request's head is there.
func headEnds(head []byte) bool {
	return bytes.Contains(head, []byte("\r\n\r\n")) || bytes.Contains(head, []byte("\n\n"))
}

// answer is the answer to a request of which the head is given, whole or too long.
func answer(head []byte, whole bool, text func() string) []byte {
	status, kind := "200 OK", launcher.PrometheusType
	var body string
	line, _, _ := bytes.Cut(head, []byte("\n"))
	words := strings.Fields(string(line))
	path := ""
	if len(words) == 3 {
		path, _, _ = strings.Cut(words[1], "?")
	}
	plain := "text/plain; charset=utf-8"
	switch {
	case !whole:
		status, kind, body = "431 Request Header Fields Too Large", plain, "the request is too long\n"
	case len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1."):
		status, kind, body = "400 Bad Request", plain, "this is no request of HTTP/1\n"
	case words[0] != "GET" && words[0] != "HEAD":
		status, kind, body = "405 Method Not Allowed", plain, "only GET and HEAD\n"
	case path != "/metrics":
		status, kind, body = "404 Not Found", plain, "the metrics are at /metrics\n"
	default:
		body = text()
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n", status, kind, len(body))
	if strings.HasPrefix(status, "405") {
		b.WriteString("Allow: GET, HEAD\r\n")
	}
	b.WriteString("\r\n")
	if len(words) == 0 || words[0] != "HEAD" {
		b.WriteString(body)
	}
	return b.Bytes()
}

// run runs a job and answers meanwhile.
func (m *meter) run(ctx context.Context, job launcher.Job) (launcher.Result, error) {
	h, err := launcher.Start(ctx, job)
	if err != nil {
		m.close()
		return launcher.Result{}, err
	}
	m.serve(h.Stats)
	defer m.close()
	return h.Wait()
}

// setMetrics reads where to listen.
func setMetrics(s *settings, value string) error {
	_, port, err := net.SplitHostPort(value)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n > 65535 {
		return unfit(value, "HOST:PORT or :PORT; try --metrics 127.0.0.1:9464, or port 0 for one that is free")
	}
	s.metrics = value
	return nil
}
