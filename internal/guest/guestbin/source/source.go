// Package source builds the guest from the sources that are embedded in this program.
package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for sys.txtar
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/tools/txtar"

	"github.com/fumehood/fumehood/internal"
)

// Module is the path of this module, by which the guest's packages import each other.
const Module = "github.com/fumehood/fumehood"

// Main is the guest's main package, relative to the module.
const Main = "internal/guest/main"

// sys holds the files of golang.org/x/sys that the guest needs, and the go.mod for the build. `go generate
// ./internal/guest/guestbin` writes it, from the module version that go.mod requires.
//
//go:embed sys.txtar
var sys []byte

// ErrNoToolchain is the error of Build if no go command is on the PATH.
var ErrNoToolchain = errors.New("no Go toolchain: the go command is not on the PATH")

// flags are the flags of the build. They are part of the key.
var flags = []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid="}

// environment returns variables that make the build independent of the user's settings and of the network.
func environment(arch string) []string {
	return []string{
		"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=",
		"GODEBUG=", "GOWORK=off", "GOTOOLCHAIN=local", "GOPROXY=off",
	}
}

// Files returns the sources by their path in the build folder. They form a module of their own, with golang.org/x/sys
// in the folder sys.
var Files = sync.OnceValues(func() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, f := range txtar.Parse(sys).Files {
		files[f.Name] = f.Data
	}
	err := fs.WalkDir(internal.GuestSources, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files["internal/"+path], err = internal.GuestSources.ReadFile(path)
		return err
	})
	return files, err
})

// Key returns the SHA-256, in hex, of the sources, flags and environment. These determine the guest, together with
// the Go version.
var Key = sync.OnceValues(func() (string, error) {
	files, err := Files()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q\n", flags, environment("")) // a hash accepts all writes
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, _ = fmt.Fprintf(h, "%q %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})

// Build builds the guest for an architecture with the go command on the PATH, and returns the program. It needs no
// network. The same sources and Go version give the same bytes. Without a go command the error is ErrNoToolchain.
func Build(ctx context.Context, arch string) ([]byte, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return nil, ErrNoToolchain
	}
	files, err := Files()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fumehood-guest-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, err
		}
	}
	out := filepath.Join(dir, "guest")
	cmd := exec.CommandContext(ctx, goCommand, append(slices.Clone(flags), "-o", out, "./"+Main)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environment(arch)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return os.ReadFile(out)
}
