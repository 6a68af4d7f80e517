package group

import (
	"errors"
	"fmt"
)

// Kind says what a member is.
type Kind string

// The kinds of members.
const (
	Daemon    Kind = "daemon"
	Direct    Kind = "client (non-offloaded)"
	Offloaded Kind = "client (offloaded)"
)

// participant tells whether a member runs the algorithm.
func (k Kind) participant() bool { return k == Daemon || k == Direct }

const (
	magic           = "gorun-allreduce"
	protocolVersion = 1
)

// A hello is what each side says first.
type hello struct {
	Magic   string `msgpack:"magic"`
	Version int    `msgpack:"version"`
	Kind    Kind   `msgpack:"kind"`
	ID      string `msgpack:"id"` // random
	Order   int    `msgpack:"order"`
	Label   string `msgpack:"label"`
	Config  Config `msgpack:"config"`
	To      string `msgpack:"to,omitempty"` // ID of the member that is to be reached; "": who is there
}

// name is the member as messages name it.
func (h *hello) name() string { return string(h.Kind) + " " + h.Label }

// An answer is what the side that accepted thinks of the other one.
type answer struct {
	Verdict verdict `msgpack:"verdict"`
	Reason  string  `msgpack:"reason,omitempty"`
}

type verdict uint8

const (
	accepted verdict = iota + 1
	duplicate
	refused
)

var (
	// ErrRefused: the two ends of a connection cannot be in one group.
	ErrRefused = errors.New("refused")
	// ErrOwn: the other end of a connection is this one.
	errOwn = errors.New("this is the member itself")
	// errElsewhere: another member than the one meant answers at an address. Addresses of
	// bridges for containers are the same on many hosts.
	errElsewhere = errors.New("another member is here")
	// errDuplicate: both ends are connected already.
	errDuplicate = errors.New("connected already")
)

// judge tells why two members cannot be in one group. Both ends come to the same verdict,
// and each shows both configurations.
func judge(own, other *hello) error {
	switch {
	case other.Magic != magic || other.Version != protocolVersion:
		return fmt.Errorf("%w: the other end is no allreduce of this version (%q %d, expected %q %d)", ErrRefused, other.Magic, other.Version, magic, protocolVersion)
	case own.To != "" && own.To != other.ID || other.To != "" && other.To != own.ID:
		return errElsewhere
	case other.ID == own.ID:
		return errOwn
	case other.ID == "" || len(other.ID) > 64 || len(other.Label) > 512 || !other.Kind.participant() && other.Kind != Offloaded:
		return fmt.Errorf("%w: the other end is no allreduce of this version", ErrRefused)
	case own.Config != other.Config:
		return fmt.Errorf("%w: the configurations differ\n  here, %s:\n    %s\n  there, %s:\n    %s", ErrRefused, own.name(), own.Config.String(), other.name(), other.Config.String())
	}
	return nil
}

// pairs tells why the side that accepts does not take a member of the other's kind.
func pairs(acceptor, dialer Kind) error {
	if dialer == Offloaded && acceptor != Daemon {
		return fmt.Errorf("this is a %s, which serves no clients: an offloaded client needs the address of a daemon", acceptor)
	}
	return nil
}
