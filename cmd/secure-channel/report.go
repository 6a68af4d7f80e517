package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorun-mpi/gorun/rdma/comch"
)

// A result is what an end knows of one channel.
type result struct {
	Peer          string `json:"peer"`
	Planned       int    `json:"planned"` // to send
	Size          int    `json:"bytes"`   // of each
	Sent          int    `json:"sent"`
	Received      int    `json:"received"`
	ReceivedBytes int64  `json:"received_bytes"`
	Complete      bool   `json:"complete"` // both ends have received all, and know it

	SendMicroseconds    float64 `json:"send_us"`
	ReceiveMicroseconds float64 `json:"receive_us"`
	TotalMicroseconds   float64 `json:"total_us"`
	PerMessage          float64 `json:"message_us"` // total by the longer direction

	sendStart, sendEnd, recvStart, recvEnd, end time.Time
}

// settle works out the times.
func (r *result) settle() {
	us := func(from, to time.Time) float64 {
		if from.IsZero() || to.IsZero() {
			return 0
		}
		return float64(to.Sub(from)) / float64(time.Microsecond)
	}
	if r.end.IsZero() {
		r.end = time.Now()
	}
	if r.sendEnd.IsZero() && !r.sendStart.IsZero() {
		r.sendEnd = r.end
	}
	r.SendMicroseconds, r.ReceiveMicroseconds = us(r.sendStart, r.sendEnd), us(r.recvStart, r.recvEnd)
	r.TotalMicroseconds = us(r.sendStart, r.end)
	r.PerMessage = each(r.TotalMicroseconds, max(r.Sent, r.Received))
}

func each(us float64, n int) float64 {
	if n == 0 {
		return 0
	}
	return us / float64(n)
}

// clock is a time of day as the original prints it: seconds, with 9 decimals.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond())
}

// write prints the result for people. Its first lines are the original's.
func (r *result) write(to io.Writer, role, device string, many bool) {
	w := &bytes.Buffer{} // one write, which a launcher keeps together
	defer func() { _, _ = to.Write(w.Bytes()) }()
	if many {
		fmt.Fprintf(w, "%s: channel with %s\n", role, r.Peer)
	}
	fmt.Fprintf(w, "planned   %d messages of %d bytes on %s\n", r.Planned, r.Size, device)
	fmt.Fprintf(w, "send      start %s, end %s: %d messages in %.3f us, %.3f us each\n",
		clock(r.sendStart), clock(r.sendEnd), r.Sent, r.SendMicroseconds, each(r.SendMicroseconds, r.Sent))
	fmt.Fprintf(w, "receive   start %s, end %s: %d messages in %.3f us, %.3f us each\n",
		clock(r.recvStart), clock(r.recvEnd), r.Received, r.ReceiveMicroseconds, each(r.ReceiveMicroseconds, r.Received))
	how := "both ends have received all"
	if !r.Complete {
		how = "incomplete"
	}
	fmt.Fprintf(w, "total     %d sent, %d received (%d bytes) in %.3f us, %.3f us per message; %s\n",
		r.Sent, r.Received, r.ReceivedBytes, r.TotalMicroseconds, r.PerMessage, how)
}

// serve uses one channel, closes it, and reports.
func (a *app) serve(ctx context.Context, conn *comch.Conn) error {
	a.Log.Infof("%s: the channel is open", conn.Peer())
	a.Log.Info(saidMet)
	x := newExchange(a, conn)
	err := x.run(ctx)
	x.settle()
	if err == nil && a.forever {
		<-ctx.Done()
		err = ctx.Err()
	}
	a.Log.Infof(saidSendFrom, clock(x.sendStart))
	a.Log.Infof(saidSendTo, clock(x.sendEnd))
	a.Log.Infof(saidSent, x.Sent)
	a.Log.Infof(saidRecvFrom, clock(x.recvStart))
	a.Log.Infof(saidRecvTo, clock(x.recvEnd))
	a.Log.Infof(saidReceived, x.Received)
	a.mu.Lock()
	x.result.write(a.Out, a.role, a.device, a.many())
	a.results = append(a.results, &x.result)
	a.mu.Unlock()
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%s: %w", conn.Peer(), err)
	}
	return errors.Join(err, conn.Close())
}

// many tells whether several channels are reported.
func (a *app) many() bool { return a.forever || a.clients > 1 || a.launched }
