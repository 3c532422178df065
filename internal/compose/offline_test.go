package compose

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// What a project does counts, however its files say it.
func TestLoad_offline(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		key  string // of the error; empty if the project is offline
	}{
		"plain":                 {"services: {a: {image: i}, b: {image: i, network_mode: none}, c: {image: i, network_mode: 'service:a'}, d: {image: i, network_mode: 'service:b'}}", ""},
		"own networks":          {"services: {a: {image: i, networks: [n, m]}}\nnetworks: {n: , m: {internal: true}}", ""},
		"ports":                 {"services: {a: {image: i, ports: ['80']}}", ""},
		"egress":                {"x-fumehood: {egress: internet}\nservices: {a: {image: i}}", "x-fumehood.egress"},
		"no use of egress":      {"x-fumehood: {egress: internet}\nservices: {a: {image: i, networks: [n]}, b: {image: i, network_mode: none}}\nnetworks: {n: {internal: true}}", ""},
		"one of two networks":   {"x-fumehood: {egress: internet}\nservices: {a: {image: i, networks: [n, m]}}\nnetworks: {n: {internal: true}, m: }", "x-fumehood.egress"},
		"bridge":                {"services: {a: {image: i, network_mode: bridge}}", "services.a.network_mode"},
		"default":               {"services: {a: {image: i, network_mode: default}}", "services.a.network_mode"},
		"host":                  {"services: {a: {image: i, network_mode: host}}", "services.a.network_mode"},
		"another container":     {"services: {a: {image: i, network_mode: 'container:x'}}", "services.a.network_mode"},
		"a lender's":            {"services: {a: {image: i, network_mode: 'service:b'}, b: {image: i, network_mode: 'service:c'}, c: {image: i, network_mode: bridge}}", "services.a.network_mode"},
		"a container's name":    {"services: {a: {image: i, network_mode: 'container:box'}, b: {image: i, container_name: box, network_mode: bridge}}", "services.b.network_mode"},
		"external":              {"services: {a: {image: i, networks: [n]}}\nnetworks: {n: {external: true}}", "networks.n.external"},
		"default is external":   {"services: {a: {image: i}}\nnetworks: {default: {external: true, name: bridge}}", "networks.default.external"},
		"a name server":         {"services: {a: {image: i, dns: [8.8.8.8]}}", "services.a.dns"},
		"a tagged key":          {"services: {a: {image: i, !!binary bmV0d29ya19tb2Rl: bridge}}", "quote it"},
		"a tagged setting":      {"!!binary eC1mdW1laG9vZA==: {egress: internet}\nservices: {a: {image: i}}", "quote it"},
		"a merge key":           {"x-a: &a {network_mode: bridge}\nservices: {a: {<<: *a, image: i}}", "services.a.network_mode"},
		"a variable":            {"services: {a: {image: i, network_mode: '${NONE:-bridge}'}}", "services.a.network_mode"},
		"a JSON escape":         {`{"services": {"a": {"image": "i", "network_\u006dode": "bridge"}}}`, "services.a.network_mode"},
		"extends":               {"services: {a: {extends: {file: other.yaml, service: b}}}", "services.a.network_mode"},
		"extends a service":     {"services: {a: {extends: b}, b: {image: i, network_mode: bridge}}", "services.a.network_mode"},
		"include":               {"include: [other.yaml]\nservices: {a: {image: i}}", "services.b.network_mode"},
		"a second document":     {"services: {a: {image: i}}\n---\nservices: {a: {network_mode: bridge}}", "services.a.network_mode"},
		"no longer":             {"services: {a: {image: i, network_mode: bridge}}\n---\nservices: {a: {network_mode: !override none}}", ""},
		"an inactive profile's": {"services: {a: {image: i}, b: {image: i, network_mode: bridge, profiles: [p]}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t, map[string]string{"compose.yaml": tt.file, "other.yaml": "services: {b: {image: i, network_mode: bridge}}"})
			src := fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}, Offline: true}
			p, err := Load(t.Context(), "box", src)
			if tt.key != "" {
				if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), tt.key) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p.Apply(Policy{})
			for key, n := range p.Types().Networks {
				if !n.Internal || bool(n.External) {
					t.Errorf("the network %s is not internal", key)
				}
			}
			for _, svc := range p.Types().Services {
				if len(svc.Networks) == 0 && svc.NetworkMode != fumehood.NetworkNone && !strings.HasPrefix(svc.NetworkMode, "service:") {
					t.Errorf("the service %s has the network %q", svc.Name, svc.NetworkMode)
				}
			}
		})
	}
	if _, err := Load(t.Context(), "box", fumehood.Compose{Content: "services: {a: {image: i}}", Offline: true, Egress: fumehood.EgressInternet}); err == nil {
		t.Error("egress by the caller was accepted")
	}
}
