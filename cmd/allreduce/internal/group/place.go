package group

import (
	"net"
	"os"
	"strconv"
	"strings"
)

// A Place is where a participant can be reached.
type Place struct {
	Stack string   `msgpack:"stack"` // its network stack
	IPs   []string `msgpack:"ips"`
	Port  int      `msgpack:"port"`
}

// Here is the place of a listener of this process.
func Here(l net.Listener) (Place, error) {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return Place{}, err
	}
	n, err := strconv.Atoi(port)
	return Place{Stack: stack(), IPs: addresses(), Port: n}, err
}

// Addresses are those at which this process may reach a participant: within one host by
// loopback.
func (p *Place) Addresses() []string {
	port := strconv.Itoa(p.Port)
	if p.Stack == stack() {
		return []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)}
	}
	var list []string
	for _, ip := range p.IPs {
		list = append(list, net.JoinHostPort(ip, port))
	}
	return list
}

// stack names this process's network stack: processes with the same one reach each other by
// the loopback address.
func stack() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, _ := os.Readlink("/proc/self/ns/net")
	hostname, _ := os.Hostname()
	return strings.Join([]string{hostname, strings.TrimSpace(string(boot)), space}, "/")
}

// maxIPs bounds the addresses of a record: others try each of them.
const maxIPs = 16

// addresses are those of this host that others may reach.
func addresses() []string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var list []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(list) < maxIPs {
			list = append(list, n.IP.String())
		}
	}
	return list
}
