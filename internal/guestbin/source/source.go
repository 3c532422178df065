// Package source builds the guest from its sources and tells whether a built one is stale. The build
// command and the test that guards the embedded files share it.
package source

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

const pkg = "github.com/lazaret/lazaret/cmd/lazaret-guest"

// Manifest says what the embedded guests were built from.
type Manifest struct {
	GoVersion string            `json:"go_version"` // as runtime.Version has it
	Sources   string            `json:"sources"`    // SHA-256 over this module's files that the guest is made of, and the versions of other modules
	Packed    map[string]string `json:"packed"`     // file name to the SHA-256 of the packed file
}

// goCmd runs the go command with a fixed environment, so that no setting of the user's changes the result.
func goCmd(ctx context.Context, arch string, args ...string) ([]byte, error) {
	// The go command puts its own folder first in the PATH of what it runs, so this is the same one.
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off", "GODEBUG=", "GOTOOLCHAIN=local")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v: %w: %s", args, err, stderr.Bytes())
	}
	return out, nil
}

// Build returns the guest for an architecture, packed.
func Build(ctx context.Context, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "lazaret-guest-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest")
	_, err = goCmd(ctx, arch, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out, pkg)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	zw, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zw.Write(program); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// Hash returns the hash of all that the guest for the architectures is made of.
func Hash(ctx context.Context, architectures []string) (string, error) {
	type file struct{ name, path string }
	var parts []file
	h := sha256.New()
	for _, arch := range architectures {
		out, err := goCmd(ctx, arch, "list", "-deps", "-json=ImportPath,Dir,GoFiles,SFiles,Standard,Module", pkg)
		if err != nil {
			return "", err
		}
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			var p struct {
				ImportPath, Dir string
				GoFiles, SFiles []string
				Standard        bool
				Module          *struct{ Path, Version string }
			}
			if err := dec.Decode(&p); err == io.EOF {
				break
			} else if err != nil {
				return "", err
			}
			switch {
			case p.Standard:
			case p.Module != nil && p.Module.Version != "":
				parts = append(parts, file{name: p.Module.Path + "@" + p.Module.Version})
			default:
				for _, f := range append(p.GoFiles, p.SFiles...) {
					parts = append(parts, file{name: p.ImportPath + "/" + f, path: filepath.Join(p.Dir, f)})
				}
			}
		}
	}
	slices.SortFunc(parts, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	for _, f := range slices.Compact(parts) {
		var content []byte
		if f.path != "" {
			var err error
			if content, err = os.ReadFile(f.path); err != nil {
				return "", err
			}
		}
		_, _ = fmt.Fprintf(h, "%s %d\n", f.name, len(content)) // a hash takes everything
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Sum is the SHA-256 of a packed guest as the manifest writes it.
func Sum(packed []byte) string {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:])
}
