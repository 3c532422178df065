// Package guestbin delivers the guest, the static program that runs inside sandboxes.
//
// `make build` and `make test` build the guest in advance, into the folder embedded. Git ignores that folder, and
// this program embeds it. If the folder was empty at build time, or its guests were built from other sources,
// For builds the guest at first use. It uses the local Go toolchain and sources that this program embeds too, and keeps
// the result in the user's cache folder.
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
	"github.com/fumehood/fumehood/internal/guest/guestbin/source"
)

//go:generate go run ./build -sys
//go:generate go run ./build

//go:embed all:embedded
var embedded embed.FS

// Architectures lists the architectures that a guest is built for, in Go's names.
var Architectures = source.Architectures

// Binary is a guest that can be delivered.
type Binary struct {
	SHA256  string // of the program, in hex
	Version string // the first 12 digits of SHA256
	program func() ([]byte, error)
}

// Of returns the Binary of a program.
func Of(program []byte) Binary {
	b := describeBinary(sum(program))
	b.program = func() ([]byte, error) { return program, nil }
	return b
}

// describeBinary returns a Binary without its program.
func describeBinary(sum string) Binary { return Binary{SHA256: sum, Version: sum[:12]} }

// Program returns the guest, an ELF file, of at most MaxProgram bytes. An embedded guest is unpacked and checked now,
// once in a process: starts that find the guest in a volume do without. Callers must not modify the bytes.
func (b Binary) Program() ([]byte, error) { return b.program() }

// MaxProgram bounds the size of a guest, in bytes.
const MaxProgram = 8 << 20

// manifest describes the guests of a folder. It is stored there as manifest.json.
type manifest struct {
	Key    string            `json:"key"`    // source.Key of their sources
	SHA256 map[string]string `json:"sha256"` // of each program, in hex, by architecture
}

const manifestName = "manifest.json"

func packedName(arch string) string { return "linux-" + arch + ".gz" }

// For returns the guest for a Linux architecture, in Go's names ("amd64"). If no current guest is embedded or cached,
// For builds one, which takes up to a minute, and logs that.
//
// For an unknown architecture the error is an ErrUnsupported. It is an ErrConfig if a guest must be built and there
// is no Go toolchain or no private cache folder. Its Hint then says what to do.
func For(ctx context.Context, arch string, log *slog.Logger) (Binary, error) {
	op := "find the guest for linux/" + arch
	if !slices.Contains(Architectures, arch) {
		return Binary{}, &fumehood.Error{
			Op: op, Class: fumehood.ErrUnsupported, Err: fmt.Errorf("no guest for this architecture, only for %v", Architectures),
		}
	}
	guest, err := fromEmbedded(arch)
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
	if _, err := fromEmbedded(arch); err == nil {
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

// current returns the manifest of the embedded guests. If there are none, or their sources differ, the error is
// fs.ErrNotExist.
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

// fromEmbedded returns the embedded guest. If there is no current one, the error is fs.ErrNotExist.
func fromEmbedded(arch string) (Binary, error) {
	m, err := current()
	if err != nil {
		return Binary{}, err
	}
	if len(m.SHA256[arch]) != 2*sha256.Size {
		return Binary{}, fmt.Errorf("embedded %s: no SHA-256 for %s", manifestName, arch)
	}
	b := describeBinary(m.SHA256[arch])
	b.program = unpacked[arch]
	return b, nil
}

// unpacked returns the embedded programs, by architecture. Each is unpacked at most once per process.
var unpacked = func() map[string]func() ([]byte, error) {
	all := map[string]func() ([]byte, error){}
	for _, arch := range Architectures {
		all[arch] = sync.OnceValues(func() ([]byte, error) {
			program, err := unpack(arch)
			if err != nil {
				err = &fumehood.Error{Op: "unpack the guest for linux/" + arch, Class: fumehood.ErrInfrastructure, Err: err}
			}
			return program, err
		})
	}
	return all
}()

// unpack unpacks the embedded program and checks its SHA-256.
func unpack(arch string) ([]byte, error) {
	m, err := current()
	if err != nil {
		return nil, err
	}
	packed, err := embedded.ReadFile("embedded/" + packedName(arch))
	if err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	program, err := io.ReadAll(io.LimitReader(zr, MaxProgram))
	if err != nil {
		return nil, err
	}
	if got := sum(program); got != m.SHA256[arch] {
		return nil, fmt.Errorf("SHA-256 is %s, want %s", got, m.SHA256[arch])
	}
	return program, nil
}

// sum returns the SHA-256 in hex.
func sum(program []byte) string {
	h := sha256.Sum256(program)
	return hex.EncodeToString(h[:])
}

// Embed builds the guests for all architectures into a folder, unless the folder has current ones.
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
	return os.WriteFile(filepath.Join(dir, manifestName), append(text, '\n'), 0o644) // last, as it makes the guests valid
}

// upToDate reports whether a folder has a guest for each architecture, built from the sources with this key.
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
