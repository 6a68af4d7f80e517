package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// kinds are what ranks do while one of them dies. While the job goes on nobody ends
// those that wait for any rank.
var kinds = []string{"allreduce", "bcast", "alltoall", "barrier", "ring", "finalize", "any"}

// cause runs a job over several hosts of which a rank dies by a signal, or an agent,
// and looks whether gorun names it: the others see the connection break and exit
// with status 1.
func (b *bench) cause(r *rand.Rand, i int) error {
	hosts := []string{"a:2,b:2", "a:1,b:1,c:1,d:1", "a:1,b:3"}[r.IntN(3)]
	args := []string{"--launcher", "fork", "-H", hosts, "-np", "4"}
	list := kinds
	if r.IntN(3) == 0 {
		args = append(args, "--continuous")
		list = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k == "any" })
	}
	signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}[r.IntN(3)]
	dies := r.IntN(4)
	program := []string{b.self, "--victim", "-kind", list[r.IntN(len(list))], "-dies", fmt.Sprint(dies), "-signal", fmt.Sprint(int(signal)),
		"-after", fmt.Sprint(r.IntN(20_000)), "-m", []string{"1", "100", "20000"}[r.IntN(3)]}
	status := 128 + int(signal)
	want := fmt.Sprintf(`(?m)^gorun: rank %d \(host .*: killed by signal %d \(`, dies, signal)
	switch r.IntN(8) {
	case 0: // below a shell, which is the rank
		program = []string{"sh", "-c", strings.Join(program, " ") + "; exit $?"}
		want = fmt.Sprintf(`(?m)^gorun: rank %d \(host .*: exited with status %d$`, dies, status)
	case 1: // with its agent
		program = append(program, "-agent")
		status, want = 1, fmt.Sprintf(`(?m)^gorun: host %s: its agent .* was killed by signal 9`, hostOf(hosts, dies))
	}
	j, err := b.start(fmt.Sprintf("cause-%d", i), append(args, program...)...)
	if err != nil {
		return err
	}
	got, err := j.finish()
	b.did("jobs")
	if err == nil && (got != status || !regexp.MustCompile(want).MatchString(j.err.String())) {
		err = fmt.Errorf("status %d, want %d and %q", got, status, want)
	}
	if err != nil {
		return fmt.Errorf("gorun %s: %w; %q %q", strings.Join(append(args, program...), " "), err, tail(j.out.String()), tail(j.err.String()))
	}
	return nil
}

// hostOf is the host of a rank, whose hosts are filled in their order.
func hostOf(hosts string, rank int) string {
	for _, h := range strings.Split(hosts, ",") {
		name, slots, _ := strings.Cut(h, ":")
		if rank -= int(slots[0] - '0'); rank < 0 {
			return name
		}
	}
	return ""
}
