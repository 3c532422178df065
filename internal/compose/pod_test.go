package compose

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

func loadPod(t *testing.T, text string) *Project {
	t.Helper()
	dir := filetest.Lay(t, map[string]string{"compose.yaml": text, "data/f": ""})
	p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProject_CheckPod(t *testing.T) {
	t.Parallel()
	const head = "services:\n  main:\n    image: i\n    command: sleep infinity\n"
	const two = "services:\n  a:\n    image: i\n%s  b:\n    image: i\n%snetworks: {n: {}, m: {}, inside: {internal: true}}\n"
	both := func(a, b string) string { return fmt.Sprintf(two, a, b) }
	for name, c := range map[string]struct{ text, want string }{
		"plain": {head, ""},
		"all supported": {head + "    user: '1'\n    working_dir: /w\n    environment: {A: b}\n    ports: ['80']\n    volumes: ['./data:/d:ro', 'vol:/v', /anonymous]\n" +
			"    deploy: {resources: {limits: {cpus: '1', memory: 64m}}}\n    init: true\n    restart: always\n    stop_signal: SIGINT\n    hostname: h\n" +
			"    healthcheck: {test: 'true', start_period: 1s}\n    cap_drop: [ALL]\n    cap_add: [chown]\n    security_opt: ['no-new-privileges:true']\n" +
			"    tmpfs: ['/t:size=1m,exec']\n    read_only: true\n    shm_size: 1m\n    extra_hosts: ['x:10.0.0.1', 'y:[::1]']\nvolumes: {vol: {}}\n", ""},
		"false values":      {head + "    privileged: false\n    read_only: false\n    cap_add: []\n", ""},
		"inactive service":  {head + "  other: {image: i, profiles: [p]}\n", ""},
		"unscaled service":  {head + "  other: {image: i, scale: 0}\n", ""},
		"two services":      {both("    depends_on: [b]\n    expose: ['80', '90-92']\n", "    expose: ['80/udp', '93']\n"), ""},
		"shared network":    {both("    networks: [n]\n", "    network_mode: service:a\n"), ""},
		"two networks":      {both("    networks: [n, m]\n", "    networks: [m]\n"), ""},
		"networks apart":    {both("    networks: [n]\n", "    networks: [m]\n"), "compose.yaml:7: services.b.networks: it has no network in common with a"},
		"one without":       {both("", "    network_mode: none\n"), "compose.yaml:6: services.b.network_mode: none: "},
		"one with internet": {"x-fumehood: {egress: internet}\n" + both("    networks: [n, inside]\n", "    networks: [inside]\n"), "compose.yaml:8: services.b.networks: of it and a only one reaches the internet"},
		"same port":         {both("    expose: ['79-81']\n", "    ports: ['8080:80']\n"), "compose.yaml:7: services.b.ports: 80/tcp is a port of a too"},
		"same exposed port": {both("    expose: ['53/udp']\n", "    expose: ['50-60/udp']\n"), "compose.yaml:7: services.b.expose: 53/udp is a port of a too"},
		"two containers":    {head + "    scale: 2\n", "compose.yaml:5: services.main.scale: "},
		"link":              {both("    links: ['b:c']\n", ""), "compose.yaml:4: services.a.links: "},
		"volume of image":   {head + "    volumes: [{type: image, source: i, target: /v}]\n", "compose.yaml:5: services.main.volumes.0: "},
		"part of volume":    {head + "    volumes: [{type: volume, source: vol, target: /v, volume: {subpath: x}}]\nvolumes: {vol: {}}\n", "compose.yaml:5: services.main.volumes.0: "},
		"volume options":    {head + "    volumes: ['vol:/v']\nvolumes:\n  vol: {driver_opts: {type: tmpfs, device: tmpfs}}\n", "compose.yaml:7: volumes.vol: "},
		"tmpfs option":      {head + "    tmpfs: '/t:noatime'\n", "compose.yaml:5: services.main.tmpfs: noatime: "},
		"capability":        {head + "    cap_add: [SYS_PTRACE]\n", "compose.yaml:5: services.main.cap_add: SYS_PTRACE: "},
		"new privileges":    {head + "    security_opt: ['no-new-privileges:false']\n", "compose.yaml:5: services.main.security_opt: "},
		"default runtime":   {head + "    runtime: runc\n", ""},
		"other runtime":     {head + "    runtime: runsc\n", "compose.yaml:5: services.main.runtime: "},
		"image of file":     {"services: {main: {image: 'docker-archive:i.tar'}}\n", "compose.yaml:1: services.main.image: it names a file of the host"},
		"host gateway":      {head + "    extra_hosts: ['x:host-gateway']\n", "compose.yaml:5: services.main.extra_hosts: x: host-gateway"},
		"bad alias":         {head + "    networks: {n: {aliases: ['a b']}}\nnetworks: {n: {}}\n", `services.main: "a b" cannot be a host name`},
		"limits of files":   {head + "    ulimits: {nofile: 5}\n", "compose.yaml:5: services.main.ulimits: "},
		"secret":            {head + "    secrets: [s]\nsecrets: {s: {file: data/f}}\n", ""},
		"secret as text":    {head + "    configs: [s]\nconfigs: {s: {content: x}}\n", "compose.yaml:5: services.main.configs: s: "},
		"hook":              {head + "    post_start: [{command: 'true'}]\n", "compose.yaml:5: services.main.post_start: "},
		"reservation":       {head + "    deploy: {resources: {reservations: {memory: 1m}}}\n", "compose.yaml:5: services.main.deploy.resources.reservations: "},
		"static address":    {head + "    networks: {n: {ipv4_address: 10.1.2.3}}\nnetworks: {n: {ipam: {config: [{subnet: 10.1.2.0/24}]}}}\n", "services.main.networks.n: "},
		"subnet":            {head + "    networks: [n]\nnetworks:\n  n: {ipam: {config: [{subnet: 10.1.2.0/24}]}}\n", "compose.yaml:7: networks.n: "},
		"always pulled":     {head + "    pull_policy: always\n", "compose.yaml:5: services.main.pull_policy: "},
		"another network":   {head + "    network_mode: bridge\n", "compose.yaml:5: services.main.network_mode: bridge"},
		"additional groups": {head + "    group_add: ['5']\n", "compose.yaml:5: services.main.group_add: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := loadPod(t, c.text).CheckPod(Runner{Name: "native"}, false)
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an ErrUnsupported with %q", err, c.want)
			}
		})
	}
}

// What containers of a Pod on some node cannot have is refused where it is.
func TestProject_CheckPod_node(t *testing.T) {
	t.Parallel()
	const head = "services:\n  main:\n    image: i\n    command: sleep infinity\n"
	for name, c := range map[string]struct {
		text, want string
		by         Runner
	}{
		"all supported": {text: head + "    user: '1'\n    working_dir: /w\n    environment: {A: b}\n    ports: ['80']\n    volumes: ['vol:/v', /anonymous]\n" +
			"    deploy: {resources: {limits: {cpus: '1', memory: 64m}}}\n    restart: always\n    hostname: h\n    cap_drop: [ALL]\n    cap_add: [chown]\n" +
			"    tmpfs: ['/t:size=1m,ro']\n    read_only: true\n    shm_size: 1m\n    extra_hosts: ['x:10.0.0.1']\nvolumes: {vol: {}}\n"},
		"path of this machine": {text: head + "    volumes: ['./data:/d:ro']\n", want: "compose.yaml:5: services.main.volumes.0: "},
		"secret":               {text: head + "    secrets: [s]\nsecrets: {s: {file: data/f}}\n", want: "compose.yaml:5: services.main.secrets: s: "},
		"tmpfs option":         {text: head + "    tmpfs: '/t:uid=5'\n", want: "compose.yaml:5: services.main.tmpfs: the pods provider sets only the size"},
		"share of memory":      {text: head + "    tmpfs: '/t:size=50%'\n", want: "compose.yaml:5: services.main.tmpfs: "},
		"mode of tmpfs":        {text: head + "    volumes: [{type: tmpfs, target: /t, tmpfs: {mode: 0700}}]\n", want: "compose.yaml:5: services.main.volumes.0: "},
		"build":                {text: head + "    build: {dockerfile_inline: FROM scratch}\n", want: "compose.yaml:5: services.main.build: the pods provider builds no images"},
		"build, built":         {text: head + "    build: {dockerfile_inline: FROM scratch}\n", by: Runner{Prebuilt: true}},
		"builtin image":        {text: "services: {main: {image: fumehood-builtin/agent}}\n", want: "compose.yaml:1: services.main.image: "},
		"other host name":      {text: head + "  other:\n    image: i\n    hostname: o\n", want: "compose.yaml:7: services.other.hostname: "},
		"processes":            {text: head + "    pids_limit: 64\n", want: "compose.yaml:5: services.main.pids_limit: "},
		"processes, allowed":   {text: head + "    pids_limit: 64\n", by: Runner{AllowUnenforced: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by := c.by
			by.Name, by.Pod = "pods", true
			err := loadPod(t, c.text).CheckPod(by, false)
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want an ErrUnsupported with %q", err, c.want)
			}
		})
	}
}

// The ports of a project that is to be kept are refused where they are.
func TestProject_CheckPod_kept(t *testing.T) {
	t.Parallel()
	p := loadPod(t, "services:\n  main:\n    image: i\n    ports: ['80']\n")
	if err := p.CheckPod(Runner{Name: "native"}, true); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "compose.yaml:4: services.main.ports: ") {
		t.Errorf("got %v", err)
	}
}

// one returns the only member of a project.
func one(t *testing.T, text string, spec fumehood.Spec, image Image) (Member, error) {
	t.Helper()
	p := loadPod(t, text)
	all, _, err := p.Members(spec, map[string]Image{p.main: image})
	if len(all) != 1 {
		t.Fatalf("%d members, error %v", len(all), err)
	}
	return all[0], err
}

// The services of a project share no array of the caller.
func TestProject_Members_mounts(t *testing.T) {
	t.Parallel()
	p := loadPod(t, "services:\n  a: {image: i, entrypoint: [x], volumes: ['./data:/a:ro']}\n  b: {image: i, entrypoint: [x], volumes: ['./data:/b:ro']}\n")
	all, _, err := p.Members(fumehood.Spec{Compose: &fumehood.Compose{}, Mounts: make([]fumehood.Mount, 0, 8)}, map[string]Image{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%d members, error %v", len(all), err)
	}
	for _, m := range all {
		if len(m.Spec.Mounts) != 1 || m.Spec.Mounts[0].Container != "/"+m.Name {
			t.Errorf("%s: %+v", m.Name, m.Spec.Mounts)
		}
	}
}

func TestProject_Members(t *testing.T) {
	t.Parallel()
	asked := fumehood.Spec{Name: "box", Compose: &fumehood.Compose{}, Limits: fumehood.Limits{PIDs: 200, Disk: 1 << 20}}
	const text = `
services:
  main:
    image: i
    user: "1:2"
    working_dir: /w
    environment: {A: b}
    ports: ["80/udp"]
    volumes: ["./data:/d:ro", "vol:/v:ro", "/w", {type: tmpfs, target: /t, tmpfs: {size: 9}}]
    tmpfs: ["/u:mode=0700,ro"]
    deploy: {resources: {limits: {cpus: "1.5", memory: 64m, pids: 300}}}
    restart: on-failure:3
    hostname: h
    container_name: cc
    cap_drop: [CHOWN]
    extra_hosts: ["x:10.0.0.1"]
    secrets: [{source: s, target: key}]
    configs: [c]
volumes: {vol: {}}
secrets: {s: {file: data/f}}
configs: {c: {file: data/f}}
`
	m, err := one(t, text, asked, Image{Command: []string{"sleep", "infinity"}})
	if err != nil {
		t.Fatal(err)
	}
	got := m.Spec
	if len(got.Mounts) != 3 || filepath.Base(got.Mounts[1].Host) != "f" || got.Mounts[1].Container != "/run/secrets/key" || got.Mounts[1].Writable || got.Mounts[2].Container != "/c" || filepath.Base(got.Mounts[0].Host) != "data" || got.Mounts[0].Container != "/d" || got.Mounts[0].Writable {
		t.Errorf("mounts: %+v", got.Mounts)
	}
	got.Mounts = nil
	want := fumehood.Spec{
		Name: "box", User: "1:2", Dir: "/w", Env: map[string]string{"A": "b"}, Compose: asked.Compose,
		Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1.5, PIDs: 200, Disk: 1 << 20},
		Ports:  []fumehood.Port{{Container: 80, Protocol: fumehood.ProtocolUDP, Address: "127.0.0.1"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	m.Spec, m.Service = fumehood.Spec{}, Service{}
	wantMember := Member{
		Restart: "no", Hostname: "h", Hosts: []string{"127.0.0.1\tmain cc h", "10.0.0.1\tx"}, // the guest does not restart
		Capabilities: slices.DeleteFunc(slices.Clone(capabilities), func(name string) bool { return name == "CHOWN" }),
		Volumes:      []Volume{{Name: "vol", Container: "/v"}, {Container: "/w", Writable: true}},
		Tmpfs:        []fumehood.Tmpfs{{Container: "/t", Options: []string{"size=9"}}, {Container: "/u", Options: []string{"mode=0700", "size=67108864"}, ReadOnly: true}},
	}
	if !reflect.DeepEqual(m, wantMember) {
		t.Errorf("got  %+v\nwant %+v", m, wantMember)
	}
	if m, err = one(t, text, asked, Image{Entrypoint: []string{"nginx"}, Command: []string{"-g"}}); err != nil || m.Restart != "on-failure" || m.MostRestarts != 3 || !slices.Equal(m.Program, []string{"nginx", "-g"}) {
		t.Errorf("own program: %+v, %v", m, err)
	}
	for keys, want := range map[string]string{"tty: true": "services.main.tty: ", "stdin_open: true": "services.main.stdin_open: "} {
		_, err := one(t, "services:\n  main:\n    image: i\n    "+keys+"\n", asked, Image{Entrypoint: []string{"nginx"}})
		if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

func TestProject_Members_health(t *testing.T) {
	t.Parallel()
	image := Health{Test: []string{"CMD-SHELL", "a b"}, Interval: time.Second, Retries: 7}
	for name, c := range map[string]struct {
		keys  string
		image Health
		want  *Health
	}{
		"none":             {"", Health{}, nil},
		"image":            {"", image, &Health{Test: []string{"/bin/sh", "-c", "a b"}, Interval: time.Second, Timeout: 30 * time.Second, Retries: 7}},
		"image and file":   {", healthcheck: {interval: 2s, start_period: 3s, start_interval: 4s}", image, &Health{Test: []string{"/bin/sh", "-c", "a b"}, Interval: 2 * time.Second, Timeout: 30 * time.Second, Retries: 7, StartPeriod: 3 * time.Second, StartInterval: 4 * time.Second}},
		"file":             {", healthcheck: {test: [CMD, x, y], timeout: 1s, retries: 1}", Health{}, &Health{Test: []string{"x", "y"}, Interval: 30 * time.Second, Timeout: time.Second, Retries: 1}},
		"disabled":         {", healthcheck: {disable: true}", image, nil},
		"disabled by none": {", healthcheck: {test: [NONE]}", image, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := one(t, "services: {a: {image: i, command: x"+c.keys+"}}", fumehood.Spec{Compose: &fumehood.Compose{}}, Image{Health: c.image})
			if err != nil || !reflect.DeepEqual(m.Health, c.want) {
				t.Errorf("got %+v, %v, want %+v", m.Health, err, c.want)
			}
		})
	}
}

func TestProject_Members_restart(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"": "no 0", ", restart: always": "always 0", ", restart: 'on-failure:2'": "on-failure 2", ", restart: unless-stopped": "unless-stopped 0",
		", deploy: {restart_policy: {condition: any}}":                                          "always 0",
		", restart: always, deploy: {restart_policy: {condition: on-failure, max_attempts: 4}}": "on-failure 4",
		", restart: always, deploy: {restart_policy: {condition: none}}":                        "no 0",
	} {
		m, err := one(t, "services: {a: {image: i, command: x"+keys+"}}", fumehood.Spec{Compose: &fumehood.Compose{}}, Image{})
		if got := fmt.Sprint(m.Restart, " ", m.MostRestarts); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", keys, got, err, want)
		}
	}
}

func TestProject_Members_network(t *testing.T) {
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
			m, err := one(t, c.text, spec, Image{Command: []string{"sleep", "infinity"}})
			if got := m.Spec; err != nil || got.Network.Mode != c.want {
				t.Errorf("network %q, error %v, want %q", m.Spec.Network.Mode, err, c.want)
			}
		})
	}
}

func TestProject_Members_limits(t *testing.T) {
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
			m, err := one(t, "services: {a: {image: i, command: sleep infinity"+c.keys+"}}", fumehood.Spec{Compose: &fumehood.Compose{}, Limits: c.asked}, Image{})
			if got := m.Spec; err != nil || got.Limits != c.want {
				t.Errorf("got %+v, %v, want %+v", m.Spec.Limits, err, c.want)
			}
		})
	}
}
