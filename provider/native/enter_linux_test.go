//go:build amd64 || arm64

package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/testimages"
	"github.com/fumehood/fumehood/internal/tier"
)

// A process that enters a sandbox has all rights. It must not start another program than itself there.
func TestSandbox_join_otherProgram(t *testing.T) {
	t.Parallel()
	if err := Supported(); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	p, err := New(t.Context(), Options{StateDir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	testimages.Load(t, p, "fumehood-test/busybox")
	ctx := t.Context()
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: "fumehood-test/busybox"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.As("1").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	program, err := p.guest()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "guest")
	if err := write(other, content, 0o711); err != nil {
		t.Fatal(err)
	}
	for s := range p.boxes {
		s.guest = other
	}
	if _, err := sb.As("2").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err == nil {
		t.Error("it started a program that is not its own")
	}
}
