package compose

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

// A sandbox that a spec describes has the same plan as one that a Compose file describes.
func TestFromSpec(t *testing.T) {
	t.Parallel()
	dir := filetest.Lay(t, map[string]string{"data/f": ""})
	data := filepath.Join(dir, "data")
	const offline = "    network_mode: none\n"
	for name, c := range map[string]struct {
		spec   fumehood.Spec
		text   string // of the service
		rest   string // of the file
		policy Policy
	}{
		"plain":    {text: offline},
		"no guest": {text: offline, policy: Policy{Volume: "guest"}},
		"user, folder and variables": {
			spec: fumehood.Spec{User: "1:2", Dir: "/w", Env: map[string]string{"A": "$x", "B": ""}},
			text: offline + "    user: '1:2'\n    working_dir: /w\n    environment: {A: $$x, B: ''}\n",
		},
		"limits": {
			spec: fumehood.Spec{Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 0.5, PIDs: 50}, ShmSize: 1 << 20},
			text: offline + "    shm_size: 1m\n",
		},
		"no limits": {
			spec: fumehood.Spec{Limits: fumehood.Limits{Memory: fumehood.NoLimit, CPUs: fumehood.NoLimit, PIDs: fumehood.NoLimit}},
			text: offline + "    pids_limit: -1\n",
		},
		"limits that are not enforced": {
			spec: fumehood.Spec{Limits: fumehood.Limits{CPUs: 1}}, text: offline, policy: Policy{Volume: "guest", Serve: true, Unheld: Unheld{Memory: true, CPUs: true}},
		},
		"mounts": {
			spec: fumehood.Spec{Mounts: []fumehood.Mount{{Host: data, Container: "/ro"}, {Host: data, Container: "/rw", Writable: true}}},
			text: offline + "    volumes: ['./data:/ro:ro', './data:/rw']\n",
		},
		"memory": {
			spec: fumehood.Spec{Tmpfs: []string{"/t:size=1m", "/u:exec"}, Limits: fumehood.Limits{Memory: 64 << 20}},
			text: offline + "    tmpfs: ['/t:size=1048576', '/u:size=67108864,exec']\n",
		},
		"network and ports": {
			spec:   fumehood.Spec{Network: fumehood.Network{Mode: fumehood.NetworkBridge}, Ports: []fumehood.Port{{Container: 80}, {Container: 53, Host: 5353, Protocol: "udp"}}},
			text:   "    ports: ['80', '5353:53/udp']\n",
			rest:   "x-fumehood: {egress: internet, keep_ports: true}\n",
			policy: Policy{Volume: "guest", Serve: true, Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/28")}},
		},
		"runtime and sockets": {
			spec: fumehood.Spec{Runtime: "runsc"}, text: offline,
			policy: Policy{Volume: "guest", Serve: true, Runtime: "runsc", Sockets: func(string) string { return "/sockets" }},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "services:\n  default:\n    image: i\n    entrypoint: [sleep, infinity]\n    logging: {driver: json-file, options: {max-size: 1m, max-file: '1'}}\n"
			loaded, err := Load(t.Context(), "box", fumehood.Compose{Content: file + c.text + c.rest, Dir: dir, AllowUnsafe: true})
			if err != nil {
				t.Fatal(err)
			}
			c.spec.Name, c.spec.Image = "box", "i"
			if err := c.spec.Validate(); err != nil {
				t.Fatal(err)
			}
			made, pol := FromSpec(c.spec), c.policy
			if pol.Volume == "" {
				pol.Volume, pol.Serve = "guest", true
			}
			pol.Limits, pol.Labels, pol.Images = c.spec.Limits, Labels{"owner": "me"}, map[string]Image{DefaultService: {Ref: "found"}}
			made.Apply(pol)
			loaded.Apply(pol)
			if got, want := valuesOf(t, made), valuesOf(t, loaded); !reflect.DeepEqual(got, want) {
				t.Errorf("of the spec: %v\nof the file: %v", got, want)
			}
			if got, want := made.Services(), loaded.Services(); !reflect.DeepEqual(got, want) {
				t.Errorf("of the spec: %+v\nof the file: %+v", got, want)
			}
			got, want := memberOf(t, made, c.spec), memberOf(t, loaded, fumehood.Spec{Name: "box", Image: "i", Runtime: c.spec.Runtime, Limits: c.spec.Limits, Compose: &fumehood.Compose{}})
			if want.Hostname != DefaultService || len(want.Hosts) != 1 || got.Hostname != "box" || got.Hosts != nil {
				t.Errorf("names: %q %q, of the file %q %q", got.Hostname, got.Hosts, want.Hostname, want.Hosts)
			}
			if fields := fieldsOf(got.Spec); !reflect.DeepEqual(got.Spec, c.spec) || !reflect.DeepEqual(fields, fieldsOf(want.Spec)) {
				t.Errorf("of the spec: %+v\nof the file: %+v", fields, fieldsOf(want.Spec))
			}
			want.Hostname, want.Hosts, got.Spec, want.Spec = got.Hostname, nil, fumehood.Spec{}, fumehood.Spec{}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("of the spec: %+v\nof the file: %+v", got, want)
			}
		})
	}
}

// fieldsOf returns what a service's own settings are in the spec of a Member.
func fieldsOf(s fumehood.Spec) fumehood.Spec {
	own := fumehood.Spec{User: s.User, Dir: s.Dir, Env: s.Env, Mounts: s.Mounts, Limits: s.Limits.WithDefaults()}
	own.Network.Mode = cmp.Or(s.Network.Mode, fumehood.NetworkNone)
	if len(own.Env) == 0 {
		own.Env = nil
	}
	return own
}

// valuesOf returns what a project is created from.
func valuesOf(t *testing.T, p *Project) (all map[string]any) {
	t.Helper()
	text, err := p.JSON()
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(all, settingsKey)
	return all
}

func memberOf(t *testing.T, p *Project, spec fumehood.Spec) Member {
	t.Helper()
	image := Image{Entrypoint: []string{"/server"}, Command: []string{"-v"}}
	all, _, err := p.Members(spec, map[string]Image{DefaultService: image})
	if err != nil || len(all) != 1 {
		t.Fatalf("got %d, %v", len(all), err)
	}
	return all[0]
}
