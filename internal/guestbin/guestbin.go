// Package guestbin holds the built guest, the static program that runs inside containers, so that users
// of the library have it without a build step.
//
// The files lazaret-guest-linux-*.gz are not written by hand: `go generate ./internal/guestbin` builds
// cmd/lazaret-guest for each architecture and packs it. The build is reproducible; manifest.json records
// the Go version and a hash of the sources, and a test fails when the files are stale.
package guestbin

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
)

//go:generate go run ./build

//go:embed lazaret-guest-linux-*.gz manifest.json
var files embed.FS

// Architectures are those that a guest is built for, as Go names them.
var Architectures = []string{"amd64", "arm64"}

// Name is the file of the guest for an architecture.
func Name(arch string) string { return "lazaret-guest-linux-" + arch + ".gz" }

// Binary is a guest that can be delivered.
type Binary struct {
	Program []byte // an ELF file
	Version string // the first 12 hex digits of the program's SHA-256
}

// For returns the guest for a Linux architecture as Go names it ("amd64").
func For(arch string) (Binary, error) {
	packed, err := files.ReadFile(Name(arch))
	if err != nil {
		return Binary{}, fmt.Errorf("there is no guest for linux/%s, only for %v", arch, Architectures)
	}
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Binary{}, fmt.Errorf("unpack the guest for %s: %w", arch, err)
	}
	program, err := io.ReadAll(zr)
	if err != nil {
		return Binary{}, fmt.Errorf("unpack the guest for %s: %w", arch, err)
	}
	sum := sha256.Sum256(program)
	return Binary{Program: program, Version: hex.EncodeToString(sum[:])[:12]}, nil
}
