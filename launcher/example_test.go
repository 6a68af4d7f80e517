package launcher_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/launcher"
)

// A job whose lines are taken as they come, and how each of its ranks ended.
func Example() {
	var lines []string
	result, err := launcher.Run(context.Background(), launcher.Job{
		Argv: []string{"sh", "-c", `echo hello from $RANK of $WORLD_SIZE; [ $RANK = 2 ] && exit 3; exec sleep 60`},
		NP:   3,
		Lines: func(l launcher.Line) {
			lines = append(lines, fmt.Sprintf("rank %d, %v: %s", l.Rank, l.Stream, l.Text))
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	slices.Sort(lines) // ranks do not wait for each other
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "rank 2") }); i >= 0 {
		fmt.Println(lines[i])
	}
	fmt.Println("status", result.ExitStatus, "because of rank", result.Cause.Rank)
	for _, r := range result.Ranks {
		if !r.Told { // the others were told to end, because of that one
			fmt.Printf("rank %d exited with status %d\n", r.Rank, r.Status)
		}
	}
	// Output:
	// rank 2, stdout: hello from 2 of 3
	// status 3 because of rank 2
	// rank 2 exited with status 3
}

// A job that is started, asked how it is, and ended by a signal.
func ExampleStart() {
	ready := make(chan bool)
	h, err := launcher.Start(context.Background(), launcher.Job{
		Argv:  []string{"sh", "-c", "echo ready; exec sleep 60"},
		NP:    2,
		Lines: func(launcher.Line) { ready <- true },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-ready
	<-ready
	for _, r := range h.Ranks() {
		fmt.Printf("rank %d is %v\n", r.Rank, r.State)
	}
	if err := h.Signal(syscall.SIGTERM); err != nil {
		fmt.Println(err)
	}
	result, err := h.Wait()
	fmt.Println("status", result.ExitStatus, err)
	// Output:
	// rank 0 is running
	// rank 1 is running
	// status 143 <nil>
}

// A job whose lines come while it runs, and how each rank has ended. docs/launching.md
// shows what is in this function.
func runHello(ctx context.Context) error {
	h, err := launcher.Start(ctx, launcher.Job{
		Argv:       []string{"sh", "-c", "echo hello; exit $RANK"},
		NP:         2,
		Continuous: true, // rank 1 fails, and rank 0 goes on
		Lines: func(l launcher.Line) {
			fmt.Printf("rank %d, %v: %s\n", l.Rank, l.Stream, l.Text)
		},
	})
	if err != nil {
		return err // nothing has run
	}
	// Meanwhile: h.Ranks(), h.Stats(), h.Signal(syscall.SIGUSR1).
	result, err := h.Wait()
	if err != nil {
		return err
	}
	for _, r := range result.Ranks {
		fmt.Printf("rank %d has ended with status %d\n", r.Rank, r.Status)
	}
	if result.Cause != nil { // host, program, signal, its last lines ...
		fmt.Printf("rank %d was the first to fail\n", result.Cause.Rank)
	}
	return nil
}

func ExampleHandle() {
	if err := runHello(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// rank 0, stdout: hello
	// rank 1, stdout: hello
	// rank 0 has ended with status 0
	// rank 1 has ended with status 1
	// rank 1 was the first to fail
}

// The example in docs/launching.md is the one above.
func TestPageExampleCompilesAndRuns(t *testing.T) {
	page, err := os.ReadFile("../docs/launching.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```go\nh, err := launcher.Start")
	shown, _, closed := strings.Cut("h, err := launcher.Start"+rest, "```")
	if !ok || !closed {
		t.Fatal("found no example of launcher.Start in docs/launching.md")
	}
	var indented strings.Builder
	for line := range strings.Lines(shown) {
		indented.WriteString("\t" + line)
	}
	if !strings.Contains(string(code), indented.String()) {
		t.Errorf("docs/launching.md has another example than example_test.go:\n%s", shown)
	}
}

// Figures of a job for Prometheus, in a program that has a server already.
func ExampleStats_WritePrometheus() {
	h, err := launcher.Start(context.Background(), launcher.Job{Argv: []string{"echo", "hello"}, NP: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", launcher.PrometheusType)
		_ = h.Stats().WritePrometheus(w)
	})
	if _, err := h.Wait(); err != nil {
		fmt.Println(err)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "gorun_ranks") || strings.HasPrefix(line, "gorun_stream_bytes_total{stream=\"stdout\"") {
			fmt.Print(line)
		}
	}
	// Output:
	// gorun_ranks{state="waiting"} 0
	// gorun_ranks{state="running"} 0
	// gorun_ranks{state="ended"} 2
	// gorun_ranks{state="failed"} 0
	// gorun_stream_bytes_total{stream="stdout"} 12
}
