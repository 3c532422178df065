// Package internal embeds the sources of the guest in the program.
package internal

import "embed"

// GuestSources contains the files of this module's packages that the guest consists of, by their paths below this
// folder. Package guestbin builds the guest from them if no built guest is embedded. A test there compares the list
// with what the go command compiles.
//
//go:embed archive/archive.go archive/nonblock_unix.go archive/sparse.go archive/unpack.go
//go:embed files/change.go files/files_unix.go files/owned.go files/owner.go files/pack.go files/times_linux.go files/walk.go files/write.go
//go:embed guest/guest.go guest/queue.go guest/*_linux.go guest/*_linux_*.s guest/main/main.go
//go:embed ring/ring.go
//go:embed setup/config.go setup/*_linux.go
//go:embed wire/conn.go wire/content.go wire/datagram.go wire/frame.go wire/memory.go wire/memory_linux.go wire/messages.go wire/pack.go wire/prove.go wire/rawcall_linux.go wire/restart.go wire/socket_linux.go wire/stream.go
var GuestSources embed.FS
