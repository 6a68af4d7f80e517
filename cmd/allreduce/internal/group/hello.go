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
	protocolVersion = 2
)

// A hello is what each side says first.
type hello struct {
	Magic   string `msgpack:"magic"`
	Version int    `msgpack:"version"`
	Kind    Kind   `msgpack:"kind"`
	ID      string `msgpack:"id"` // random
	Label   string `msgpack:"label"`
	Config  Config `msgpack:"config"`
}

// name is the member as messages name it.
func (h *hello) name() string { return string(h.Kind) + " " + h.Label }

// An answer is what the side that accepted thinks of the other one: why it does not take it, if so.
type answer struct {
	Refused string `msgpack:"refused,omitempty"`
}

var (
	// errRefused: the two ends of a connection cannot be in one group.
	errRefused = errors.New("refused")
	// errOwn: the other end of a connection is this one.
	errOwn = errors.New("this is the member itself")
)

// judge tells why two members cannot be in one group. Both ends come to the same verdict,
// and each shows both configurations.
func judge(own, other *hello) error {
	switch {
	case other.Magic != magic || other.Version != protocolVersion:
		return fmt.Errorf("%w: the other end is no allreduce of this version (%q %d, expected %q %d)", errRefused, other.Magic, other.Version, magic, protocolVersion)
	case other.ID == own.ID:
		return errOwn
	case other.ID == "" || len(other.ID) > 64 || len(other.Label) > 512 || !other.Kind.participant() && other.Kind != Offloaded:
		return fmt.Errorf("%w: the other end is no allreduce of this version", errRefused)
	}
	return Differ(&own.Config, own.name(), &other.Config, other.name())
}

// Differ is an error that shows both configurations, if they differ.
func Differ(own *Config, name string, other *Config, theirs string) error {
	if *own == *other {
		return nil
	}
	return fmt.Errorf("%w: the configurations differ\n  here, %s:\n    %s\n  there, %s:\n    %s", errRefused, name, own, theirs, other)
}

// pairs tells why the side that accepts does not take a member of the other's kind.
func pairs(acceptor, dialer Kind) error {
	if dialer == Offloaded && acceptor != Daemon {
		return fmt.Errorf("this is a %s, which serves no clients: an offloaded client needs the address of a daemon", acceptor)
	}
	return nil
}
