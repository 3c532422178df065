package docker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/tier"
)

// If the host has an address in a subnet, a project's file cannot use the subnet. A separate process has the address,
// in its own network namespace.
func TestSandbox_CheckRoutes(t *testing.T) {
	tier.NeedDocker(t)
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.CI, errors.New("a network namespace takes root"))
	}
	tier.Program(t, tier.CI, "ip")
	t.Parallel()
	if !tier.Inside(t, syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}) {
		return
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "add", "10.219.79.1/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := New(t.Context(), Options{NoSweep: true, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	file := filepath.Join(t.TempDir(), "compose.yaml")
	text := "services: {a: {image: fumehood-test/busybox, command: sleep infinity}}\nnetworks: {default: {ipam: {config: [{subnet: 10.219.79.0/24}]}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sb, err := p.Start(t.Context(), fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}}})
	if err == nil {
		err = sb.Close(t.Context())
	}
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "a route to 10.219.79.1/32") {
		t.Errorf("got %v", err)
	}
}
