// Command build writes the embedded guests and their manifest into the current folder. It is run by
// `go generate ./internal/guestbin`.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/lazaret/lazaret/internal/guestbin/source"
)

// Not taken from package guestbin: it does not compile while a file that it embeds is missing.
var architectures = []string{"amd64", "arm64"}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "build the guests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	hash, err := source.Hash(ctx, architectures)
	if err != nil {
		return err
	}
	m := source.Manifest{GoVersion: runtime.Version(), Sources: hash, Packed: map[string]string{}}
	for _, arch := range architectures {
		packed, err := source.Build(ctx, arch)
		if err != nil {
			return err
		}
		name := "lazaret-guest-linux-" + arch + ".gz"
		if err := os.WriteFile(name, packed, 0o644); err != nil {
			return err
		}
		m.Packed[name] = source.Sum(packed)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile("manifest.json", append(text, '\n'), 0o644)
}
