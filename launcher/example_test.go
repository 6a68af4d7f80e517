package launcher_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"

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
