package main

import (
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/visit"
	"github.com/gorun-mpi/gorun/launcher"
)

// lookLimit is how long hosts have to tell what their ranks do, for a visitor.
const lookLimit = 3 * time.Second

// receiveVisitors has gorun-info top look at a job while it runs. It makes no socket before one comes.
func receiveVisitors(signals chan<- os.Signal) (stop func()) {
	came, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(came, visit.Signal)
	begun := time.Now()
	report := func() *visit.Report {
		r := &visit.Report{PID: os.Getpid(), Program: strings.Join(os.Args, " "), Begun: begun}
		if len(signals) > cap(signals)/2 {
			return r // nobody takes them now, and a signal that finds no room is lost
		}
		answer, late := make(chan []launcher.RankState, 1), time.After(lookLimit)
		select {
		case signals <- launcher.Look(answer):
		case <-late:
			return r
		case <-over:
			return r
		}
		select {
		case states := <-answer:
			for _, s := range states {
				r.Ranks = append(r.Ranks, visit.Rank{Group: s.Group, Rank: s.Rank, Host: s.Host, CPU: s.CPU, RSS: s.RSS, Calls: s.Calls, Lines: s.Lines})
			}
		case <-late:
		case <-over:
		}
		return r
	}
	go func() {
		for {
			select {
			case <-came:
				// A visitor that has gone, or is another user's, is no matter of the job's.
				go func() { _ = visit.Receive(report) }()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(came)
		close(over)
	}
}
