package rdma

// A Representor is how a DPU sees a function of its host: the port on the DPU's side through
// which that function's traffic goes.
type Representor struct {
	Name string // of its network interface, or what the provider calls it
	// PCI is the address of the function on the host, "0000:18:00.0"; "" where the provider
	// cannot know it.
	PCI string
}

// A Placed is a device that has a place on the PCI bus. It is an optional ability of a
// Device.
type Placed interface {
	// PCI is the device's address, "0000:03:00.0", or "".
	PCI() string
}

// A Represents is a device that may have representors. It is an optional ability of a
// Device.
type Represents interface {
	// Representors lists them; none is no error.
	Representors() ([]Representor, error)
}
