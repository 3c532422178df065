package docker_test

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
)

// The promises about providers: what Close leaves, and when kept sandboxes expire.
func TestRunProvider(t *testing.T) {
	t.Parallel()
	warm(t)
	conformance.RunProvider(t, conformance.ProviderHarness{
		Spec: fumehood.Spec{Image: busybox}, Failing: fumehood.Spec{Compose: project(t, broken)},
		New: func(t *testing.T) conformance.Subject {
			// A place that a failed start does not give back blocks the next one.
			p, proxy := faulty(t, docker.Options{MaxRunning: 2}.Sped(4))
			return conformance.Subject{
				Provider: p,
				Hinder: func(*testing.T, fumehood.Sandbox) func() {
					proxy.Decide(func(call string) faultproxy.Fault {
						if call == "DELETE /containers/*" {
							return faultproxy.Internal
						}
						return faultproxy.None
					})
					return func() { proxy.Decide(nil) }
				},
				Exists: func(t *testing.T, name string) bool { return len(objectsOf(t, name)) > 0 },
			}
		},
	})
}
