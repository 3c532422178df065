package docker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
)

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	warm(t)
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "docker provider",
		Spec:   fumehood.Spec{Image: busybox}, Failing: fumehood.Spec{Compose: project(t, broken)},
		New: func(t *testing.T) conformance.Subject {
			// A place that a failed start does not give back blocks the next one.
			opts := docker.Options{MaxRunning: 2, StateDir: t.TempDir()}
			p, proxy := faulty(t, opts)
			return conformance.Subject{
				Provider: p, Dir: opts.StateDir, Only: p.OnlySandboxes,
				Another: func(t *testing.T) fumehood.Provider { return newProvider(t, docker.Options{StateDir: opts.StateDir}) },
				Guests: func(t *testing.T, name string) int {
					return len(names(t, filepath.Join(opts.StateDir, name, "sockets-default")))
				},
				Hinder: func(*testing.T, fumehood.Sandbox) func() {
					proxy.Decide(func(call string) faultproxy.Fault {
						if call == "DELETE /containers/*" {
							return faultproxy.Internal
						}
						return faultproxy.None
					})
					return func() { proxy.Decide(nil) }
				},
				Exists: func(t *testing.T, name string) bool {
					_, err := os.Lstat(filepath.Join(opts.StateDir, name))
					return err == nil || len(objectsOf(t, name)) > 0
				},
			}
		},
	})
}
