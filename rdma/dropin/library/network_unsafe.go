//go:build cgo && linux

package main

// #include "calls.h"
import "C"

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"
)

//export gd_listen
func gd_listen(socket *C.char, size C.int) C.int {
	if fabric.network == nil {
		return C.int(syscall.EOPNOTSUPP)
	}
	return errno(fabric.network.listen(C.GoString(socket), int(size)))
}

//export gd_forget
func gd_forget(socket *C.char) C.int {
	if fabric.network != nil {
		fabric.network.forget(C.GoString(socket))
	}
	return 0
}

//export gd_call
func gd_call(socket *C.char, ip *C.uint8_t, fd, size C.int) C.int {
	file := os.NewFile(uintptr(fd), "request")
	defer file.Close()
	if fabric.network == nil {
		return C.int(syscall.EOPNOTSUPP)
	}
	near, err := net.FileConn(file)
	if err != nil {
		return errno(err)
	}
	go fabric.network.call(C.GoString(socket), netip.AddrFrom4([4]byte(unsafe.Slice((*byte)(ip), 4))), near, int(size))
	return 0
}
