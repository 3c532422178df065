package guestbin

import (
	"bytes"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lazaret/lazaret/internal/guestbin/source"
)

func manifest(t *testing.T) source.Manifest {
	t.Helper()
	text, err := files.ReadFile("manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var m source.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

const rebuild = "run `go generate ./internal/guestbin` and commit the result"

func TestTheEmbeddedGuestsAreNotStale(t *testing.T) {
	hash, err := source.Hash(t.Context(), Architectures)
	if err != nil {
		t.Fatal(err)
	}
	if m := manifest(t); m.Sources != hash {
		t.Fatalf("the guest's sources have changed since the embedded guests were built: %s", rebuild)
	}
}

func TestTheEmbeddedGuestsAreWhatTheirSourcesBuild(t *testing.T) {
	m := manifest(t)
	for _, arch := range Architectures {
		packed, err := files.ReadFile(Name(arch))
		if err != nil {
			t.Fatal(err)
		}
		if got := source.Sum(packed); got != m.Packed[Name(arch)] {
			t.Fatalf("%s is not the file that its manifest describes: %s", Name(arch), rebuild)
		}
		if m.GoVersion != runtime.Version() {
			t.Logf("built with %s, this is %s: no rebuild to compare with", m.GoVersion, runtime.Version())
			continue
		}
		again, err := source.Build(t.Context(), arch)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(packed, again) {
			t.Fatalf("%s differs from a rebuild: %s", Name(arch), rebuild)
		}
	}
}

func TestTheGuestIsSmallAndStatic(t *testing.T) {
	for _, arch := range Architectures {
		b, err := For(arch)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Program) > 4_000_000 {
			t.Errorf("%s: %d bytes, at most 4 MB are allowed", arch, len(b.Program))
		}
		if !bytes.HasPrefix(b.Program, []byte("\x7fELF")) || bytes.Contains(b.Program, []byte("/lib64/ld-linux")) {
			t.Errorf("%s: not a static ELF program", arch)
		}
		t.Logf("%s: version %s, %d bytes", arch, b.Version, len(b.Program))
	}
	if _, err := For("mips"); err == nil || !strings.Contains(err.Error(), "mips") {
		t.Errorf("a guest for mips: %v", err)
	}
	if !slices.IsSorted(Architectures) {
		t.Error("keep the architectures sorted: the manifest's hash depends on their set, not their order")
	}
}
