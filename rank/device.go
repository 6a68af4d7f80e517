package rank

import (
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
	names, err := softNames(cfg)
	if err != nil {
		return err
	}
	for _, name := range cfg.Devices {
		device := cfg.named(name, soft.Config{Names: names})
		if _, _, err := device.Find(); err != nil {
			return err
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
func softNames(cfg Config) ([]string, error) {
	env, err := cfg.environment()
	if err != nil {
		return nil, err
	}
	if len(env.Emulate) == 0 {
		return []string{"soft0"}, nil
	}
	return env.Emulate, nil
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
	names, err := softNames(*cfg)
	if err != nil {
		return nil, err
	}
	sc := soft.Config{Names: names, Segment: p.segment, Rank: p.local, Host: p.identity, Secret: p.secret, Listen: p.listen}
	if p.segment == nil {
		sc.Rank, sc.Host = 0, ""
	}
	if cfg.adversary != 0 {
		sc.Adversary = &soft.Adversary{Seed: cfg.adversary}
	}
	return peers.OpenDevice(cfg.named(choose(cfg.Devices, names, rank, size), sc))
}
