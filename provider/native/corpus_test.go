//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/composetest"
)

// corpus are the docker provider's Compose files. Each one says in x-test what it does.
const corpus = "../docker/testdata/compose"

// unsupported are the files of the corpus that the native provider refuses, and the key because of which it does.
var unsupported = map[string]string{
	"capabilities": "services.asking.cap_add", "configs": "services.app.configs", "devices-allowed": "services.app.devices",
	"egress": "services.closed.networks", "idle-forms": "services.terminal.tty", "limits": "services.short.cpu_shares",
	"names": "services.app.links", "namespaces-of-service": "services.watcher.pid", "networks-apart": "services.back.networks",
	"no-new-privileges": "services.lenient.security_opt", "post-start": "services.app.post_start", "replicas": "services.workers.scale",
	"secrets": "services.app.secrets", "static-addresses": "services.client.networks.fixed", "sysctls": "services.app.sysctls",
	"ulimits": "services.app.ulimits", "user-and-directory": "services.app.group_add", "volumes-from": "services.borrower.volumes_from",
}

// others are the files whose services answer otherwise, and why.
var others = map[string]string{
	"entrypoint": "process 1 is the guest", "one-service": "the guest has another argument", "profiles": "nslookup does not read /etc/hosts",
}

// TestPod_corpus starts the docker provider's Compose files. They do the same, or are refused with file and line.
func TestPod_corpus(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	cases := composetest.Cases(t, corpus)
	if len(cases) < 40 {
		t.Fatalf("%d files", len(cases))
	}
	for file, c := range cases {
		name := strings.TrimSuffix(strings.TrimSuffix(file, ".yaml"), "/compose")
		if strings.HasPrefix(name, "build-") { // needs a builder
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "ports-egress" {
				needNetwork(t)
			}
			sb, err := p.Start(t.Context(), c.Spec())
			key, refused := unsupported[name]
			switch {
			case refused:
				if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), key+": ") {
					t.Errorf("got %v, want an ErrUnsupported for %s", err, key)
				}
			case c.Fails != nil || c.Refused != nil:
				for _, want := range append(c.Fails, c.Refused...) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%q missing in: %v", want, err)
					}
				}
			case err != nil:
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if others[name] == "" {
				c.Check(t, sb)
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
