// Package internal embeds the sources of the guest in the program.
package internal

import "embed"

// GuestSources contains the files of this module's packages that the guest consists of, by their paths below this
// folder. Package guestbin builds the guest from them if no built guest is embedded. A test there compares the list
// with what the go command compiles.
//
//go:embed guest/archive/archive.go guest/archive/nonblock_unix.go guest/archive/skipped.go guest/archive/sparse.go guest/archive/unpack.go
//go:embed guest/files/change.go guest/files/files_unix.go guest/files/owned.go guest/files/owner.go guest/files/pack.go guest/files/times_linux.go guest/files/walk.go guest/files/write.go
//go:embed guest/guest.go guest/queue.go guest/*_linux.go guest/*_linux_*.s guest/main/main.go
//go:embed guest/ring/ring.go
//go:embed native/setup/config.go native/setup/*_linux.go
//go:embed wire/conn.go wire/content.go wire/datagram.go wire/frame.go wire/lasting.go wire/memory.go wire/memory_linux.go wire/messages.go wire/pack.go wire/prove.go wire/rawcall_linux.go wire/restart.go wire/socket_linux.go wire/stream.go
var GuestSources embed.FS
