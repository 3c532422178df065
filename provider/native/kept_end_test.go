//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// A stop kills what waits for a service in the namespaces of another one. The service goes on.
func TestSandbox_Stop_keptProject(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{UserNamespace: true})
	sb := keep(t, p, fumehood.Spec{Compose: composeFile(t, twoWaiting)})
	opened, err := p.Open(t.Context(), sb.Info().Name)
	if err == nil {
		err = errors.Join(opened.Stop(t.Context()), opened.Close(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"other", "default"} {
		if got := in(t, sb, service, "sleep 2; echo still here"); got != "still here" {
			t.Errorf("%s: got %q", service, got)
		}
	}
	if err := sb.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
