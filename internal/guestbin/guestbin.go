// Package guestbin delivers the guest, the static program that runs inside sandboxes.
//
// `make build` and `make test` build it ahead into the folder embedded, which git ignores and the program contains.
// Where that folder was empty when the program was built, or its sources have changed since, For builds the guest at
// first use with the local Go toolchain, from sources that the program contains as well, and keeps it in the user's
// cache folder.
package guestbin

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guestbin/source"
)

//go:generate go run ./build -sys
//go:generate go run ./build

//go:embed all:embedded
var embedded embed.FS

// Architectures are the ones that a guest is built for, as Go names them.
var Architectures = source.Architectures

// Binary is a guest that can be delivered.
type Binary struct {
	Program []byte // an ELF file, which all of the process share: not to be changed
	Version string // the first 12 hex digits of the program's SHA-256
}

// maxProgram bounds the size of a guest, in bytes.
const maxProgram = 8 << 20

// manifest describes the guests of a folder. It is the file manifest.json there.
type manifest struct {
	Key    string            `json:"key"`    // source.Key of the sources that they were built from
	SHA256 map[string]string `json:"sha256"` // of each program, in hex, by architecture
}

const manifestName = "manifest.json"

func packedName(arch string) string { return "linux-" + arch + ".gz" }

// For returns the guest for a Linux architecture as Go names it ("amd64"). It builds the guest where no current one is
// embedded or cached, which takes up to a minute, and logs that. The program's SHA-256 is checked.
//
// An unknown architecture is an ErrUnsupported. An ErrConfig means that a guest has to be built, and that there is no
// Go toolchain or no private cache folder; its Hint says what to do.
func For(ctx context.Context, arch string, log *slog.Logger) (Binary, error) {
	op := "find the guest for linux/" + arch
	if !slices.Contains(Architectures, arch) {
		return Binary{}, &fumehood.Error{
			Op: op, Class: fumehood.ErrUnsupported, Err: fmt.Errorf("no such guest: there is one for each of %v", Architectures),
		}
	}
	guest, err := unpacked[arch]()
	if errors.Is(err, fs.ErrNotExist) {
		guest, err = fromCache(ctx, arch, log)
	}
	if err != nil {
		var typed *fumehood.Error
		if errors.As(err, &typed) {
			typed.Op = op
			return Binary{}, typed
		}
		return Binary{}, &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: err}
	}
	return guest, nil
}

// Built reports whether For returns the guest for an architecture without building it.
func Built(arch string) bool {
	if _, err := unpacked[arch](); err == nil {
		return true
	}
	c, err := openCache()
	if err != nil {
		return false
	}
	defer c.close()
	_, err = c.guest(arch)
	return err == nil
}

// current returns the manifest of the embedded guests. It is an fs.ErrNotExist where there are none, or where they were
// built from other sources.
var current = sync.OnceValues(func() (manifest, error) {
	var m manifest
	text, err := embedded.ReadFile("embedded/" + manifestName)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read the embedded %s: %w", manifestName, err)
	}
	key, err := source.Key()
	if err == nil && key != m.Key {
		err = fs.ErrNotExist
	}
	return m, err
})

// unpacked are the embedded guests, by architecture. Each is unpacked once in a process.
var unpacked = func() map[string]func() (Binary, error) {
	all := map[string]func() (Binary, error){}
	for _, arch := range Architectures {
		all[arch] = sync.OnceValues(func() (Binary, error) { return fromEmbedded(arch) })
	}
	return all
}()

// fromEmbedded unpacks the embedded guest. An fs.ErrNotExist: there is no current one.
func fromEmbedded(arch string) (Binary, error) {
	m, err := current()
	if err != nil {
		return Binary{}, err
	}
	packed, err := embedded.ReadFile("embedded/" + packedName(arch))
	if err != nil {
		return Binary{}, err
	}
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Binary{}, fmt.Errorf("unpack the embedded guest: %w", err)
	}
	program, err := io.ReadAll(io.LimitReader(zr, maxProgram))
	if err != nil {
		return Binary{}, fmt.Errorf("unpack the embedded guest: %w", err)
	}
	if got := sum(program); got != m.SHA256[arch] {
		return Binary{}, fmt.Errorf("the embedded guest has the SHA-256 %s and not %s", got, m.SHA256[arch])
	}
	return binary(program), nil
}

// binary is a program with its version.
func binary(program []byte) Binary { return Binary{Program: program, Version: sum(program)[:12]} }

// sum returns the SHA-256 in hex.
func sum(program []byte) string {
	h := sha256.Sum256(program)
	return hex.EncodeToString(h[:])
}

// Embed builds the guests for all architectures into a folder, unless those there are current.
func Embed(ctx context.Context, dir string) error {
	key, err := source.Key()
	if err != nil {
		return err
	}
	if upToDate(dir, key) {
		return nil
	}
	m := manifest{Key: key, SHA256: map[string]string{}}
	for _, arch := range Architectures {
		program, err := source.Build(ctx, arch)
		if err != nil {
			return fmt.Errorf("linux/%s: %w", arch, err)
		}
		var packed bytes.Buffer
		zw, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := zw.Write(program); err != nil {
			return err
		}
		if err := zw.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, packedName(arch)), packed.Bytes(), 0o644); err != nil {
			return err
		}
		m.SHA256[arch] = sum(program)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), append(text, '\n'), 0o644) // last: it makes the others valid
}

// upToDate reports whether a folder has a guest for each architecture, built from the sources of this key.
func upToDate(dir, key string) bool {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	var m manifest
	if err != nil || json.Unmarshal(text, &m) != nil || m.Key != key {
		return false
	}
	for _, arch := range Architectures {
		if _, err := os.Stat(filepath.Join(dir, packedName(arch))); err != nil {
			return false
		}
	}
	return true
}
