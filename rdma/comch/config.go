package comch

import (
	"cmp"
	"errors"
	"fmt"
)

// MaxMessage is the longest message in bytes. It is that of DOCA's channels.
const MaxMessage = 4080

// The errors that callers branch on.
var (
	// ErrSize: a message of no bytes, or of more than MaxMessage; or a buffer for
	// Recv that is shorter than the message, which stays to be received.
	ErrSize = errors.New("message size is not supported")
	// ErrPeerGone: the peer's process has ended, or has closed the
	// channel, before it had sent its end mark or taken all messages.
	ErrPeerGone = errors.New("the peer is gone")
	// ErrForged: what the peer left in shared memory, or sent, is no message.
	ErrForged = errors.New("the peer broke the rules of the channel")
	// ErrClosed: the channel was closed on this side, or CloseSend was called.
	ErrClosed = errors.New("the channel is closed")
	// ErrRefused: one side does not accept the other; the text says why.
	ErrRefused = errors.New("refused")
	// ErrNoKey: a channel between hosts needs a key.
	ErrNoKey = errors.New("a channel between hosts needs a key")
	// ErrTaken: another listener has this name.
	ErrTaken = errors.New("the name is taken")
)

// Limits and defaults of Config.
const (
	MinBuffer     = 16
	MaxBuffer     = 4096
	DefaultBuffer = 256
	MaxQueue      = 1 << 16
	DefaultQueue  = 1024
)

// Config says what an end is like. The zero value is a channel without name and key.
type Config struct {
	// Name tells channels of one user on one host apart. Both ends give the same.
	Name string
	// Key is a secret of MinKey bytes or more that both ends know; nil is none.
	Key []byte
	// Buffer is the bytes of a slot of the queue to the peer; 0 is DefaultBuffer.
	// A message longer than that takes several.
	Buffer int
	// Queue is the number of slots of the queue to the peer; 0 is DefaultQueue. It is raised
	// to what the longest message needs.
	Queue int
	// Crowded: more ends wait at a time than there are CPUs, so none of them spins.
	Crowded bool
	// Shared: goroutines of this process that must run meanwhile, such as the other
	// end, may outnumber its processors, so waiting yields to the Go scheduler first.
	Shared bool
	// Log is told of clients that a listener refuses; nil is nobody. It is called on
	// the listener's goroutines.
	Log func(line string)
}

func (c *Config) log(format string, args ...any) {
	if c.Log != nil {
		c.Log(fmt.Sprintf(format, args...))
	}
}

// settle judges the configuration and fills in its defaults.
func (c *Config) settle() error {
	c.Buffer, c.Queue = cmp.Or(c.Buffer, DefaultBuffer), cmp.Or(c.Queue, DefaultQueue)
	switch {
	case c.Key != nil && len(c.Key) < MinKey:
		return fmt.Errorf("comch: a key of %d bytes, expected %d or more", len(c.Key), MinKey)
	case c.Buffer < MinBuffer || c.Buffer > MaxBuffer:
		return fmt.Errorf("comch: a buffer of %d bytes, expected %d to %d", c.Buffer, MinBuffer, MaxBuffer)
	case c.Queue < 1 || c.Queue > MaxQueue:
		return fmt.Errorf("comch: a queue of %d slots, expected 1 to %d", c.Queue, MaxQueue)
	}
	c.Queue = max(c.Queue, (MaxMessage+c.Buffer-1)/c.Buffer)
	return nil
}

// geometry is the form of the ring to the peer.
func (c *Config) geometry() geometry { return geometry{Room: c.Buffer, Slots: c.Queue} }
