// Package rxevm runs programs on a real RDMA stack where there is no hardware: in a
// virtual machine with Debian's kernel, its Soft-RoCE driver and the host's
// libibverbs. QEMU emulates it, so neither KVM nor root is needed.
//
//	func TestMain(m *testing.M) {
//		rxevm.Init() // the guest's init is a copy of this program
//		os.Exit(m.Run())
//	}
//
//	vm, err := rxevm.Boot(ctx, rxevm.Config{})
//	defer vm.Close()
//	err = vm.Put("bin/gorun", "")
//	out, err := vm.Output(ctx, "gorun", "-np", "2", "ibv_devices")
//
// # The guest
//
// Two CPUs, 2 GiB, the devices rxe0 and rxe1 on the two ends of a virtual cable (eth0, 10.7.0.1,
// and eth1, 10.7.1.1; MTU 4096). GID index 0 is the link-local address: with it each device reaches
// itself and the other one. Index 1 is the IPv4 address, with which a device reaches itself
// only, since both are in one network namespace. The memory that may be locked is not limited.
// BootPair makes two such machines, each with a kernel of its own and with rxe0 only, on a cable between them.
// Beside busybox's programs there are ip, rdma, ibv_devinfo, ibv_*_pingpong, ib_write_lat and others of
// perftest, and rping. Put adds other files.
//
// # How it is made
//
// Boot takes the kernel's package through apt into a cache, once for each version (70 MB, 5 s), boots the
// unpacked kernel with an initramfs of this program, the needed modules and the host's programs,
// and waits until this program in the guest has made the devices and says so on a
// virtio-serial port, over which all files, commands and output go then (200 MB/s). Nothing is
// installed, and nothing has a name outside the cache; the kernel kills QEMU when the program that called Boot ends.
//
// A boot takes 5 s on an idle machine, of which Linux takes 3; verbs are 20 to 100 times as slow as on bare software.
package rxevm
