package launcher

import (
	"fmt"
	"net"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// Connections that a host cannot make to another one are carried by this process, between their agents.

// seatAt is a host of the job by the address of a process there; nil: the job has none. mu is held.
func (c *controller) seatAt(address string) *seat {
	ip, _, err := net.SplitHostPort(address)
	for _, g := range c.worlds.groups {
		for _, s := range g.seats {
			if err == nil && s.address == ip {
				return s
			}
		}
	}
	return nil
}

// across is the agent of a host by the address of a process there, without mu.
func (c *controller) across(address string) (*agent.Link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.seatAt(address); s != nil {
		if l, ok := s.site.(*agent.Link); ok {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%s is at no host of the job", address)
}

// carried is told that a connection is carried, without mu.
func (c *controller) carried(from *seat, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.seatAt(address)
	if to == nil {
		return
	}
	c.job.Log.Info("a connection is carried", "from", from.host(), "to", to.host(), "address", address)
	if c.detours {
		return
	}
	c.detours = true
	c.watch.putWarning(fmt.Sprintf("host %s cannot connect to host %s (%s does not answer it): what gorun and Go ranks need goes by gorun's own connections, which is slower, "+
		"and programs of other MPIs may hang; have the network let TCP and UDP through, to ports that --tcp-ports 40000-40100 chooses", from.host(), to.host(), address))
}
