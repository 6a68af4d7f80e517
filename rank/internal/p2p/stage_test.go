package p2p

import (
	"context"
	"fmt"
	"testing"
)

// Ordinary memory is read through a queue pair alone, with a system call for each message. Messages that are
// staged need none. The first longer one has it made, and so has one more than there are stages.
func TestStagedMessagesNeedNoQueuePair(t *testing.T) {
	for _, tt := range []struct{ bytes, window, connections int }{
		{mappedEager + 1, stagesMost, 0}, {stagedMost, stagesMost, 0}, {stagedMost + 1, 1, 1}, {stagedMost, stagesMost + 1, 1}, {stagedMost, ticketMax + 20, 1},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", tt.window, tt.bytes), func(t *testing.T) {
			over(t, []transport{{name: "on demand", mapped: true, onDemand: true}}, []int{2}, func(ctx context.Context, p *member) error {
				const rounds = 3
				peer := 1 - p.self.rank
				for round := range rounds {
					sends, receives, got := make([]*Op, tt.window), make([]*Op, tt.window), make([][]byte, tt.window)
					for i := range tt.window {
						buf := letter(make([]byte, tt.bytes), p.self.rank, round, i)
						o, err := p.Isend(buf, nil, p.env(round), peer, Standard)
						if err != nil {
							return err
						}
						sends[i], got[i] = o, make([]byte, tt.bytes)
					}
					for i := range tt.window {
						o, err := p.Irecv(got[i], nil, want(peer, round), nil)
						if err != nil {
							return err
						}
						receives[i] = o
					}
					for i := range tt.window {
						for _, o := range []*Op{sends[i], receives[i]} {
							if err := p.Wait(ctx, o); err != nil {
								return err
							}
							if _, err := p.Finish(o); err != nil {
								return err
							}
						}
						if err := checkLetter(got[i], peer, round, i); err != nil {
							return err
						}
					}
				}
				if n := p.connections(); n != tt.connections {
					return fmt.Errorf("%d queue pairs are connected, want %d", n, tt.connections)
				}
				for _, ticket := range p.lines.freeTickets[ticketMax-stagesMost:] {
					if ticket >= stagesMost {
						return fmt.Errorf("tickets %v are free, and ticket %d, which has no stage, is taken before one that has", p.lines.freeTickets, ticket)
					}
				}
				return nil
			})
		})
	}
}
