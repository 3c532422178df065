package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysSocket is socketcall's number for socket.
const sysSocket = 1

// The arguments of socketcall, which the kernel reads from memory.
var (
	inet  = [3]uintptr{unix.AF_INET, unix.SOCK_STREAM}
	vsock = [3]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}
)

// multiplexed are the calls that only 32-bit programs can make.
var multiplexed = map[string]call{
	"socketcall/inet":  {unix.SYS_SOCKETCALL, [6]uintptr{sysSocket, uintptr(unsafe.Pointer(&inet))}, true},
	"socketcall/vsock": {unix.SYS_SOCKETCALL, [6]uintptr{sysSocket, uintptr(unsafe.Pointer(&vsock))}, true},
}
