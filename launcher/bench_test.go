package launcher

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/pmi"
)

// BenchmarkRun is the launch of a program that does nothing.
func BenchmarkRun(b *testing.B) {
	for _, np := range []int{1, 4, 64} {
		b.Run(fmt.Sprintf("np=%d", np), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := Run(context.Background(), Job{NP: np, Argv: []string{"true"}}); err != nil || r.ExitStatus != 0 {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// BenchmarkFence is a barrier of PMI between hosts, as rank 0 sees it: the median of a job's, in which
// forked agents are hosts with a rank each.
func BenchmarkFence(b *testing.B) {
	for _, hosts := range []int{4, 128} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			const barriers = 40
			job := Job{NP: hosts, Argv: roleArgv(b, "barriers", strconv.Itoa(barriers)), Agents: Agents{Launcher: "fork", Command: roleArgv(b, "agent")}}
			for i := range hosts {
				job.Hosts = append(job.Hosts, Host{Name: fmt.Sprint("h", i), Slots: 1})
			}
			var medians []float64
			for b.Loop() {
				var out bytes.Buffer
				job.Stdout = &out
				if r, err := Run(context.Background(), job); err != nil || r.ExitStatus != 0 {
					b.Fatal(r, err)
				}
				us, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
				if err != nil {
					b.Fatal(err)
				}
				medians = append(medians, us)
			}
			slices.Sort(medians)
			b.ReportMetric(medians[len(medians)/2], "fence-us")
		})
	}
}

// BenchmarkAgent is an agent until it says where it listens, of a job with 64 ranks a host.
func BenchmarkAgent(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spec := host.Spec{Job: "0123", Host: "a", Hosts: 2, NP: 128, Apps: []host.AppSpec{{Argv: []string{"true"}, Env: os.Environ(), NP: 128}}}
	for r := range 64 {
		spec.Ranks = append(spec.Ranks, host.RankSpec{Rank: r})
	}
	for b.Loop() {
		l, err := agent.Start(roleArgv(b, "agent"), os.Environ(), "a", nil)
		if err != nil {
			b.Fatal(err)
		}
		ready, over := make(chan struct{}), make(chan struct{})
		l.Begin(spec, make([]byte, agent.KeySize), agent.Way{}, 0, 0, agent.Told{
			Address: func(string, string, []int) { close(ready) }, Event: func(host.Event) {}, Lost: func(error) { close(over) },
		})
		<-ready
		b.StopTimer()
		l.Kill()
		<-over
		l.Close()
		b.StartTimer()
	}
}

// roleBarriers goes through barriers: COUNT. It waits in read, as a C program
// does. Rank 0 says what the middle one took, in microseconds.
func roleBarriers(args []string) int {
	env, _, err := pmi.FromEnviron(os.Environ())
	if err != nil {
		return 90
	}
	_ = syscall.SetNonblock(env.FD, false)
	ask := func(line string) bool {
		if _, err := syscall.Write(env.FD, []byte(line+"\n")); err != nil {
			return false
		}
		for b := make([]byte, 256); ; {
			n, _ := syscall.Read(env.FD, b)
			if n <= 0 || b[n-1] == '\n' {
				return n > 0
			}
		}
	}
	count, _ := strconv.Atoi(args[0])
	took := make([]time.Duration, count+1) // the first one also waits for the hosts to meet
	if !ask("cmd=init pmi_version=1 pmi_subversion=1") {
		return 91
	}
	for i := range took {
		begin := time.Now()
		if !ask("cmd=barrier_in") {
			return 92
		}
		took[i] = time.Since(begin)
	}
	if took = took[1:]; env.Rank == 0 {
		slices.Sort(took)
		fmt.Println(float64(took[count/2].Nanoseconds()) / 1e3)
	}
	if !ask("cmd=finalize") {
		return 93
	}
	return 0
}
