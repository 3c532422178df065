package fake_test

import (
	"context"
	"maps"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/fake"
)

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	exceptions := conformance.NoOpener("sandboxes end with the process")
	maps.Copy(exceptions, conformance.NoCleaner("sandboxes end with the process"))
	maps.Copy(exceptions, conformance.NoProjects("no images"))
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "fake provider", Exceptions: exceptions,
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
