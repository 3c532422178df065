package compose

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/filetest"
)

func loadSingle(t *testing.T, text string) *Project {
	t.Helper()
	dir := filetest.Lay(t, map[string]string{"compose.yaml": text, "data/f": ""})
	p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProject_CheckSingle(t *testing.T) {
	t.Parallel()
	const head = "services:\n  main:\n    image: i\n    command: sleep infinity\n"
	for name, c := range map[string]struct{ text, want string }{
		"plain": {head, ""},
		"all supported": {head + "    user: '1'\n    working_dir: /w\n    environment: {A: b}\n    ports: ['80']\n    volumes: ['./data:/d:ro']\n" +
			"    deploy: {resources: {limits: {cpus: '1', memory: 64m}}}\n    init: true\n    restart: always\n    stop_signal: SIGINT\n", ""},
		"false values":      {head + "    privileged: false\n    read_only: false\n    cap_add: []\n", ""},
		"inactive service":  {head + "  other: {image: i, profiles: [p]}\n", ""},
		"unscaled service":  {head + "  other: {image: i, scale: 0}\n", ""},
		"second service":    {head + "  other: {image: i}\n", "compose.yaml:5: services.other: "},
		"two containers":    {head + "    scale: 2\n", "compose.yaml:5: services.main.scale: "},
		"health check":      {head + "    healthcheck: {test: 'true'}\n", "compose.yaml:5: services.main.healthcheck: "},
		"named volume":      {head + "    volumes: ['vol:/v']\nvolumes: {vol: {}}\n", "compose.yaml:5: services.main.volumes.0: "},
		"anonymous volume":  {head + "    volumes: [/v]\n", "compose.yaml:5: services.main.volumes.0: "},
		"tmpfs":             {head + "    tmpfs: /t\n", "compose.yaml:5: services.main.tmpfs: "},
		"read-only":         {head + "    read_only: true\n", "compose.yaml:5: services.main.read_only: "},
		"capabilities":      {head + "    cap_drop: [ALL]\n", "compose.yaml:5: services.main.cap_drop: "},
		"secret":            {head + "    secrets: [s]\nsecrets: {s: {file: data/f}}\n", "compose.yaml:5: services.main.secrets: "},
		"hook":              {head + "    post_start: [{command: 'true'}]\n", "compose.yaml:5: services.main.post_start: "},
		"reservation":       {head + "    deploy: {resources: {reservations: {memory: 1m}}}\n", "compose.yaml:5: services.main.deploy.resources.reservations: "},
		"unset variable":    {head + "    environment: [A]\n", "compose.yaml:5: services.main.environment: A has no value"},
		"static address":    {head + "    networks: {n: {ipv4_address: 10.1.2.3}}\nnetworks: {n: {ipam: {config: [{subnet: 10.1.2.0/24}]}}}\n", "services.main.networks.n: "},
		"subnet":            {head + "    networks: [n]\nnetworks:\n  n: {ipam: {config: [{subnet: 10.1.2.0/24}]}}\n", "compose.yaml:7: networks.n: "},
		"alias":             {head + "    networks: {n: {aliases: [x]}}\nnetworks: {n: {}}\n", "compose.yaml:5: services.main.networks.n: "},
		"always pulled":     {head + "    pull_policy: always\n", "compose.yaml:5: services.main.pull_policy: "},
		"another network":   {head + "    network_mode: bridge\n", "compose.yaml:5: services.main.network_mode: bridge"},
		"additional groups": {head + "    group_add: ['5']\n", "compose.yaml:5: services.main.group_add: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := loadSingle(t, c.text).CheckSingle()
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an ErrUnsupported with %q", err, c.want)
			}
		})
	}
}

func TestProject_SingleSpec(t *testing.T) {
	t.Parallel()
	asked := fumehood.Spec{Name: "box", Compose: &fumehood.Compose{}, Limits: fumehood.Limits{PIDs: 200, Disk: 1 << 20}}
	p := loadSingle(t, `
services:
  main:
    image: i
    user: "1:2"
    working_dir: /w
    environment: {A: b}
    ports: ["80/udp"]
    volumes: ["./data:/d:ro"]
    deploy: {resources: {limits: {cpus: "1.5", memory: 64m, pids: 300}}}
`)
	got, _, err := p.SingleSpec(asked, Image{Command: []string{"sleep", "infinity"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Mounts) != 1 || filepath.Base(got.Mounts[0].Host) != "data" || got.Mounts[0].Container != "/d" || got.Mounts[0].Writable {
		t.Errorf("mounts: %+v", got.Mounts)
	}
	got.Mounts = nil
	want := fumehood.Spec{
		Name: "box", User: "1:2", Dir: "/w", Env: map[string]string{"A": "b"}, Compose: &fumehood.Compose{Service: "main"},
		Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1.5, PIDs: 200, Disk: 1 << 20},
		Ports:  []fumehood.Port{{Container: 80, Protocol: fumehood.ProtocolUDP, Address: "127.0.0.1"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if asked.Compose.Service != "" {
		t.Error("the caller's Compose was changed")
	}
	_, _, err = p.SingleSpec(asked, Image{Command: []string{"nginx"}})
	if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "compose.yaml:3: services.main.command: ") {
		t.Errorf("own program: %v", err)
	}
}

func TestProject_SingleSpec_network(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"default":       {"services: {a: {image: i}}", ""},
		"internet":      {"x-fumehood: {egress: internet}\nservices: {a: {image: i}}", fumehood.NetworkBridge},
		"none":          {"x-fumehood: {egress: internet}\nservices: {a: {image: i, network_mode: none}}", ""},
		"internal":      {"x-fumehood: {egress: internet}\nservices: {a: {image: i, networks: [n]}}\nnetworks: {n: {internal: true}}", ""},
		"both networks": {"x-fumehood: {egress: internet}\nservices: {a: {image: i, networks: [n, m]}}\nnetworks: {n: {internal: true}, m: {}}", fumehood.NetworkBridge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fumehood.Spec{Compose: &fumehood.Compose{}}
			got, _, err := loadSingle(t, c.text).SingleSpec(spec, Image{Command: []string{"sleep", "infinity"}})
			if err != nil || got.Network.Mode != c.want {
				t.Errorf("network %q, error %v, want %q", got.Network.Mode, err, c.want)
			}
		})
	}
}

func TestProject_SingleSpec_limits(t *testing.T) {
	t.Parallel()
	const none = fumehood.NoLimit
	for name, c := range map[string]struct {
		keys        string
		asked, want fumehood.Limits
	}{
		"defaults":        {"", fumehood.Limits{}, fumehood.Limits{PIDs: fumehood.DefaultPIDs}},
		"no limit":        {"", fumehood.Limits{Memory: none, CPUs: none, PIDs: none}, fumehood.Limits{Memory: none, CPUs: none, PIDs: none}},
		"asked":           {"", fumehood.Limits{Memory: 9 << 20, CPUs: 2, PIDs: 99}, fumehood.Limits{Memory: 9 << 20, CPUs: 2, PIDs: 99}},
		"file":            {", mem_limit: 8m, cpus: 1, pids_limit: 88", fumehood.Limits{}, fumehood.Limits{Memory: 8 << 20, CPUs: 1, PIDs: 88}},
		"both":            {", mem_limit: 8m, cpus: 3, pids_limit: 88", fumehood.Limits{Memory: 9 << 20, CPUs: 2, PIDs: 77}, fumehood.Limits{Memory: 8 << 20, CPUs: 2, PIDs: 77}},
		"default by name": {", mem_limit: 2g", fumehood.Limits{}, fumehood.Limits{Memory: 2 << 30, PIDs: fumehood.DefaultPIDs}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := loadSingle(t, "services: {a: {image: i, command: sleep infinity"+c.keys+"}}")
			got, _, err := p.SingleSpec(fumehood.Spec{Compose: &fumehood.Compose{}, Limits: c.asked}, Image{})
			if err != nil || got.Limits != c.want {
				t.Errorf("got %+v, %v, want %+v", got.Limits, err, c.want)
			}
		})
	}
}
