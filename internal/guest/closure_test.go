package guest_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The guest is delivered into every container and runs next to untrusted code. This test lists its packages, so that
// a new dependency is added only on purpose.
func TestGuest_dependencies(t *testing.T) {
	const module = "github.com/fumehood/fumehood/"
	want := []string{
		module + "internal/guest/archive", module + "internal/guest/files", module + "internal/guest", module + "internal/guest/main",
		module + "internal/guest/ring", module + "internal/native/setup", module + "internal/wire",
		"golang.org/x/sys/unix",
	}
	unwanted := []string{"net", "net/http", "os/exec", "crypto/tls", "regexp", "text/template", "testing", "plugin", "log"}

	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"internal/guest/main")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var foreign []string
	for p := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(p, "/")
		if strings.Contains(first, ".") {
			foreign = append(foreign, p)
		}
		if slices.Contains(unwanted, p) {
			t.Errorf("the guest imports %s", p)
		}
	}
	slices.Sort(foreign)
	slices.Sort(want)
	if !slices.Equal(foreign, want) {
		t.Errorf("dependencies of the guest:\n%s\nwant\n%s", strings.Join(foreign, "\n"), strings.Join(want, "\n"))
	}
}
