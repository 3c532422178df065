// Package internal holds the sources that the guest is built from, as part of the program.
package internal

import "embed"

// GuestSources holds the files of this module's packages that the guest is made of, by their path below this folder.
// Package guestbin builds the guest from them where no built one is embedded. A test there compares the list with what
// the go command compiles.
//
//go:embed archive/archive.go archive/nonblock_unix.go
//go:embed files/change.go files/files_unix.go files/owner.go files/walk.go files/write.go
//go:embed guest/guest.go guest/queue.go guest/*_linux.go guest/main/main.go
//go:embed ring/ring.go
//go:embed wire/conn.go wire/content.go wire/datagram.go wire/frame.go wire/messages.go wire/prove.go wire/socket_linux.go wire/stream.go
var GuestSources embed.FS
