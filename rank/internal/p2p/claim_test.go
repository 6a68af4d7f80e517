package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A rank that lives and does not fill in the line of an inbox that it has claimed
// holds up those who send behind it, and no call for longer than its context. When
// it fills the line in, or dies, all that is behind the line arrives, in order.
func TestLiveClaim(t *testing.T) {
	t.Run("filled", func(t *testing.T) { liveClaim(t, false) })
	t.Run("dead", func(t *testing.T) { liveClaim(t, true) })
}

func liveClaim(t *testing.T, dies bool) {
	const patience = 20 * time.Millisecond
	died := errors.New("it has died")
	// ends makes sure that f ends with its context and soon afterwards.
	ends := func(ctx context.Context, what string, f func(ctx context.Context) error) error {
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		start := time.Now()
		if err := f(short); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s behind a claim: %v, want %v", what, err, context.DeadlineExceeded)
		}
		if took := time.Since(start); took > testenv.Limit(10*time.Second) {
			return fmt.Errorf("%s with a context of %v took %v", what, patience, took)
		}
		return nil
	}
	over(t, mappedOnly, []int{3, 12}, func(ctx context.Context, p *member) error {
		b := make([]byte, 8)
		switch p.self.rank {
		case 0: // receives
			p.meet() // the line is claimed
			p.meet() // rank 1 has sent what it can
			for _, source := range []int{1, 2, -1} {
				if err := ends(ctx, fmt.Sprintf("a receive from %d", source), func(ctx context.Context) error {
					_, err := p.Recv(ctx, b, nil, want(source, 1), nil)
					return err
				}); err != nil {
					return err
				}
			}
			if dies {
				p.gone = func(peer int) error {
					if peer == 2 {
						return died
					}
					return nil
				}
			}
			p.meet()
			if dies {
				if _, err := p.Recv(ctx, b, nil, want(2, 1), nil); !errors.Is(err, died) {
					return fmt.Errorf("receive from the dead: %v, want %v", err, died)
				}
			} else if _, err := p.Recv(ctx, b, nil, want(2, 1), nil); err != nil {
				return err
			} else if err := checkLetter(b, 2, 1, 0); err != nil {
				return err
			}
			for i := 0; ; i++ {
				st, err := p.Recv(ctx, b, nil, want(1, -1), nil)
				if err != nil {
					return err
				}
				if st.Tag == 2 { // how many there were
					if n := binary.LittleEndian.Uint64(b); n != uint64(i) || i < hotAfter {
						return fmt.Errorf("%d messages arrived of %d", i, n)
					}
					return nil
				}
				if err := checkLetter(b, 1, 1, i); err != nil {
					return err
				}
			}
		case 1: // sends
			p.meet()
			n := 0
			err := ends(ctx, "a send", func(ctx context.Context) error {
				for {
					if err := p.Send(ctx, letter(b, 1, 1, n), nil, p.env(1), 0); err != nil {
						return err
					}
					n++
				}
			})
			p.meet()
			p.meet()
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(b, uint64(n))
			return p.Send(ctx, b, nil, p.env(2), 0)
		case 2: // claims
			to := &p.self.peers[0]
			at, ok := p.lines.claim(to.far)
			if !ok {
				return errors.New("no line to claim")
			}
			p.meet()
			p.meet()
			p.meet()
			if dies {
				return errSilent
			}
			// As putInbox goes on.
			ln := &to.far.inbox[at%inboxLines]
			env := p.env(1)
			ln.route, ln.id = uint64(env.Tag)<<32|uint64(env.Context), 0
			letter(ln.data[:8], 2, 1, 0)
			arch.StoreRelease64(&ln.word, pack(uint32(at/inboxLines), eager, 8, p.self.rank))
			to.far.memory.Notify()
			to.sent++
		default:
			p.meet()
			p.meet()
			p.meet()
		}
		return nil
	})
}
