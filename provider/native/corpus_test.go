//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// corpus are the docker provider's Compose files. Each one says in x-test what it does.
const corpus = "../docker/testdata/compose"

// corpusTest is the content of x-test in a file.
type corpusTest struct {
	Files, Profiles []string
	Env             map[string]string
	AllowUnsafe     bool `yaml:"allow_unsafe"`
	Run             []struct{ Service, Command, Want, Contains string }
	Fails, Refused  []string
}

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
	files, err := filepath.Glob(corpus + "/*.yaml")
	more, merr := filepath.Glob(corpus + "/*/compose.yaml")
	if err := errors.Join(err, merr); err != nil || len(files)+len(more) < 40 {
		t.Fatalf("%d files, error %v", len(files)+len(more), err)
	}
	for _, file := range append(files, more...) {
		name, _ := strings.CutPrefix(strings.TrimSuffix(strings.TrimSuffix(file, ".yaml"), "/compose"), corpus+"/")
		if strings.HasPrefix(name, "build-") { // needs a builder
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var doc struct {
				Test corpusTest `yaml:"x-test"`
			}
			if err := yaml.Unmarshal(content, &doc); err != nil {
				t.Fatal(err)
			}
			if name == "ports-egress" {
				needNetwork(t)
			}
			c := doc.Test
			src := fumehood.Compose{Files: []string{file}, Profiles: c.Profiles, Env: c.Env, AllowUnsafe: c.AllowUnsafe}
			for _, f := range c.Files {
				src.Files = append(src.Files, filepath.Join(filepath.Dir(file), f))
			}
			sb, err := p.Start(t.Context(), fumehood.Spec{Compose: &src, Limits: fumehood.Limits{Memory: 128 << 20, PIDs: 200}})
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
			for _, r := range c.Run {
				if others[name] != "" {
					break
				}
				if r.Service == "" {
					r.Service = sb.Info().Services[0].Name
				}
				if got := in(t, sb, r.Service, r.Command); r.Contains == "" && got != strings.TrimSpace(r.Want) || !strings.Contains(got, r.Contains) {
					t.Errorf("%s: %s: got %q, want %q %q", r.Service, r.Command, got, r.Want, r.Contains)
				}
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
