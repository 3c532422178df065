package compose

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
)

// FuzzLoad checks that any file is either rejected with ErrConfig, or becomes a project whose YAML can be loaded again.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"services: {a: {image: i, command: sleep infinity, ports: ['1:2', '3-4:5-6/udp'], volumes: ['vol:/v', './x:/x:ro']}}\nvolumes: {vol: }\n",
		"services:\n  a: &a {image: '${X:-$$}', environment: [A, B=$Y], networks: {n: {aliases: [x]}}}\n  b: {<<: *a, extends: a, depends_on: {a: {condition: service_healthy}}}\nnetworks: {n: {ipam: {config: [{subnet: 10.0.0.0/24}]}}}\n",
		"x-fumehood: {egress: internet, keep_ports: true}\nservices: {a: {build: {context: ., args: {A: b}}, deploy: {replicas: 2, resources: {limits: {memory: 1g}}}}}\n",
		"services: {a: {image: i, secrets: [s], configs: [{source: c, mode: 0400}], ulimits: {nofile: {soft: 1, hard: 2}}, logging: {driver: local}}}\nsecrets: {s: {file: ./s}}\nconfigs: {c: {content: x}}\n",
		"name: x\nversion: '3'\nservices: {a: {image: i, profiles: [p]}, b: {image: i, network_mode: 'service:a', pid: 'container:x', cap_add: [ALL]}}\n",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, file string, unsafe bool) {
		if len(file) > 16<<10 {
			t.Skip()
		}
		dir := t.TempDir()
		load := func(content []byte) (*Project, error) {
			path := filepath.Join(dir, "compose.yaml")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			return Load(t.Context(), "box", fumehood.Compose{Files: []string{path}, AllowUnsafe: unsafe})
		}
		p, err := load([]byte(file))
		if err != nil {
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("not an ErrConfig: %v", err)
			}
			return
		}
		p.NetworksNeeded()
		p.Apply(Policy{Volume: "guest", Serve: true})
		if len(p.Services()) == 0 || p.Services()[0].Name != p.main {
			t.Errorf("the services are %v, the default one is %s", p.Services(), p.main)
		}
		p.Apply(Policy{}) // without the guest's mount, which files may not have
		out, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load(out); err != nil {
			t.Errorf("the result does not load: %v\n%s", err, out)
		}
	})
}
