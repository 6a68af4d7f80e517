package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a member that tells when it joined.
type counted struct {
	Member
	joined chan time.Time
}

func (c *counted) Join(context.Context, map[int]string) error {
	c.joined <- time.Now()
	return nil
}

func (c *counted) Begin(_ uint64, contribution []byte, then func(all [][]byte, err error)) {
	then([][]byte{contribution}, nil)
}

func (c *counted) Close() error { return nil }

// An agent joins the others when a rank has spoken, and else when the job has lasted: one whose ranks end without a word
// joins nobody, not even for the fence that says so.
func TestAnAgentJoinsWhenItIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		speaks time.Duration // < 0: no rank does
		ends   time.Duration
		want   time.Duration // < 0: it never joins
	}{
		"spoke before the addresses came": {speaks: 0, ends: time.Minute, want: 0},
		"speaks":                          {speaks: joinLatest / 4, ends: time.Minute, want: joinLatest / 4},
		"speaks late":                     {speaks: 2 * joinLatest, ends: time.Minute, want: joinLatest},
		"never speaks":                    {speaks: -1, ends: time.Minute, want: joinLatest},
		"ends without a word":             {speaks: -1, ends: joinLatest / 2, want: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := &counted{joined: make(chan time.Time, 1)}
				j := newJoining(m)
				if c.speaks == 0 {
					j.Expect()
				}
				go j.join(t.Context(), nil, nil, func(err error) { t.Errorf("join: %v", err) })
				fenced := make(chan error, 1)
				j.Begin(1, nil, func(_ [][]byte, err error) { fenced <- err }) // a world that closes
				if c.speaks > 0 {
					time.AfterFunc(c.speaks, j.Expect)
				}
				time.AfterFunc(c.ends, func() { _ = j.Close() })
				err := <-fenced
				if c.want < 0 {
					if !errors.Is(err, ErrLeft) || len(m.joined) > 0 {
						t.Errorf("the fence ended with %v, and it joined %d times; want %v, and 0 times", err, len(m.joined), ErrLeft)
					}
					return
				}
				if err != nil {
					t.Fatalf("the fence: %v", err)
				}
				if got := (<-m.joined).Sub(began); got != c.want {
					t.Errorf("it joined after %v, want %v", got, c.want)
				}
				time.Sleep(c.ends) // of fake time: for what ends with the job
			})
		})
	}
}
