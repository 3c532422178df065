package fake_test

import (
	"context"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/fake"
)

// The promises about providers: what Close leaves.
func TestRunProvider(t *testing.T) {
	t.Parallel()
	conformance.RunProvider(t, conformance.ProviderHarness{
		Failing: fumehood.Spec{Mounts: []fumehood.Mount{{Host: "/", Container: "/host"}}},
		New: func(*testing.T) conformance.Subject {
			release := make(chan struct{})
			return conformance.Subject{
				Provider: fake.New(fake.Options{Programs: map[string]fake.Program{
					"deaf": func(context.Context, *fake.Proc) int {
						<-release
						return 0
					},
				}}),
				Hinder: func(t *testing.T, sb fumehood.Sandbox) func() {
					if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"deaf"}}); err != nil {
						t.Fatal(err)
					}
					return func() { close(release) }
				},
			}
		},
	})
}
