package pmi

import (
	"bytes"
	"fmt"
)

// initAnswer2 answers cmd=init of PMI-2.
const initAnswer2 = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"

// GreetingMax is the maximum length in bytes of the commands that identify a client at PMI_PORT.
const GreetingMax = 512

// A Greeting reads the first commands of a connection to PMI_PORT, which contain the rank:
//
//	PMI-1   cmd=initack pmiid=RANK
//	PMI-2   cmd=init pmi_version=2 pmi_subversion=0
//	        (which is answered)
//	        cmd=fullinit;pmirank=RANK; ...
//
// The zero value is ready for use. [Engine.Seat] then assigns the connection to its rank.
type Greeting struct {
	said     []byte
	answered bool
}

// Add takes bytes in pieces of any length. rank is negative until it is
// known. answer is the data to send now, if any.
func (g *Greeting) Add(data []byte) (rank int, answer []byte, err error) {
	g.said = append(g.said, data...)
	line, rest, whole := bytes.Cut(g.said, []byte("\n"))
	if !whole || len(g.said) > GreetingMax {
		return g.wait()
	}
	if !bytes.HasPrefix(line, []byte("cmd=init ")) {
		rank, err = InitAck(line)
		return rank, nil, err
	}
	m, err := ParseLine(line)
	if err != nil {
		return -1, nil, err
	}
	if version, _ := m.Int("pmi_version"); version != 2 {
		return -1, nil, fmt.Errorf("%w: %q, want cmd=initack pmiid=N, or cmd=init pmi_version=2", ErrSyntax, clip(m.String()))
	}
	if !g.answered {
		g.answered, answer = true, []byte(initAnswer2)
	}
	if len(rest) < lengthDigits {
		return -1, answer, nil
	}
	n, err := frameLength(rest[:lengthDigits])
	switch {
	case err != nil:
		return -1, answer, err
	case len(rest) < lengthDigits+n:
		_, _, err := g.wait()
		return -1, answer, err
	}
	if m, err = ParseFrame(rest[lengthDigits : lengthDigits+n]); err != nil {
		return -1, answer, err
	}
	for _, key := range []string{"pmirank", "srcid"} {
		if id, ok := m.Int(key); m.Cmd() == "fullinit" && ok && id >= 0 {
			return id, answer, nil
		}
	}
	return -1, answer, fmt.Errorf("%w: %q, want cmd=fullinit;pmirank=N;", ErrFrame, clip(m.String()))
}

// wait is the answer while more has to come.
func (g *Greeting) wait() (int, []byte, error) {
	if len(g.said) > GreetingMax {
		return -1, nil, fmt.Errorf("%w: %q and more does not name a rank within %d bytes", ErrLine, clip(string(g.said)), GreetingMax)
	}
	return -1, nil, nil
}

// Seat assigns the connection whose greeting was read to a rank.
func (e *Engine) Seat(rank int, g *Greeting) []Event {
	e.peer(rank).seated = g.answered
	return e.Receive(rank, g.said)
}

// InitAck reads the first line of PMI-1 on a connection to PMI_PORT, and returns the rank in it.
func InitAck(line []byte) (rank int, err error) {
	m, err := ParseLine(line)
	if err != nil {
		return -1, err
	}
	if id, ok := m.Int("pmiid"); m.Cmd() == "initack" && ok && id >= 0 {
		return id, nil
	}
	return -1, fmt.Errorf("%w: %q, want cmd=initack pmiid=N", ErrSyntax, clip(m.String()))
}
