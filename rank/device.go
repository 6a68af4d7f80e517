package rank

import (
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// FindDevices checks whether the devices that cfg names exist, without
// joining the job. It returns the error that [Init] would return, or nil. A
// program calls it to report a missing device once instead of from each rank.
func FindDevices(cfg Config) error {
	if len(cfg.Devices) > 2 {
		return badArgument("%d devices are named: expected one, or two (for the lower and the upper half of the ranks)", len(cfg.Devices))
	}
	env, err := cfg.environment()
	if err != nil {
		return err
	}
	names := softNames(&env)
	for _, name := range cfg.Devices {
		device := cfg.named(name, soft.Config{Names: names})
		if _, _, err := device.Find(); err != nil {
			return err
		}
		if cfg.Offload && !slices.Contains(names, name) {
			return badArgument("Config.Offload asks for the host's daemon, and device %s has no memory that it reaches: expected a software device (%s)",
				name, strings.Join(names, ", "))
		}
		if env.Secure && !slices.Contains(names, name) {
			return badArgument("gorun --secure asks for encryption (GORUN_SECURE=1), and device %s does not encrypt: "+
				"expected a software device (%s), or a network that you trust and no --secure", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// named is the device of that name.
func (cfg *Config) named(name string, sc soft.Config) peers.DeviceConfig {
	return peers.DeviceConfig{Name: name, Providers: cfg.Providers, Soft: sc,
		Missing: func(have []string) error { return &DeviceError{Name: name, Have: have} }}
}

// softNames are the names of the software devices.
func softNames(env *Environment) []string {
	if len(env.Emulate) == 0 {
		return []string{"soft0"}
	}
	return env.Emulate
}

// choose is the name of the device for a rank, the first software device if none is named. With
// two named, the lower half of the ranks uses the first.
func choose(devices, names []string, rank, size int) string {
	switch {
	case len(devices) == 0:
		return names[0]
	case len(devices) > 1 && rank >= (size+1)/2:
		return devices[1]
	}
	return devices[0]
}

// openDevice opens the rank's device.
func openDevice(cfg *Config, p *place, rank, size int) (*peers.Device, error) {
	names := softNames(cfg.Environment)
	sc := soft.Config{Names: names, Segment: p.segment, Rank: p.local, Host: p.identity, Secret: p.secret, Listen: p.listen, Ports: cfg.Environment.Ports, Detour: cfg.Environment.Detour, Silence: cfg.Environment.silence()}
	if p.segment == nil {
		sc.Rank, sc.Host = 0, ""
	} else if err := p.segment.Suffices(); err != nil {
		return nil, err
	}
	if cfg.Environment.Secure {
		sc.Secure = cfg.Secure
	}
	if cfg.adversary != 0 {
		sc.Adversary = &soft.Adversary{Seed: cfg.adversary}
	}
	return peers.OpenDevice(cfg.named(choose(cfg.Devices, names, rank, size), sc))
}

// checkSecure tells whether the program can encrypt what it is to encrypt.
func (cfg *Config) checkSecure() error {
	if cfg.Environment.Secure && cfg.Secure == nil {
		return badArgument("gorun --secure asks for encryption (GORUN_SECURE=1), and this program has none built in: " +
			"add Secure: softtls.Handshake to its rank.Config, of package github.com/gorun-mpi/gorun/rdma/soft/softtls")
	}
	return nil
}
