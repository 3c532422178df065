package compose

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

func TestLoad_unsafe(t *testing.T) {
	outside := t.TempDir()
	driverOpts := []string{"volumes.vol.driver_opts.device", "volumes.vol.driver_opts.o", "volumes.vol.driver_opts.type"}
	for name, tt := range map[string]struct {
		file string // %s stands for a folder outside of the project
		keys []string
	}{
		"privileged":                     {"services: {a: {image: i, privileged: true}}", []string{"privileged"}},
		"a name like an extension's":     {"services: {x-a: {image: i, privileged: true, devices: [/dev/fuse]}}", []string{"devices", "privileged"}},
		"the host's processes":           {"services: {a: {image: i, pid: host}}", []string{"pid"}},
		"another's processes":            {"services: {a: {image: i, pid: 'container:x'}}", []string{"pid"}},
		"the host's memory":              {"services: {a: {image: i, ipc: host}}", []string{"ipc"}},
		"the host's name":                {"services: {a: {image: i, uts: host}}", []string{"uts"}},
		"the host's users":               {"services: {a: {image: i, userns_mode: host}}", []string{"userns_mode"}},
		"the host's control group":       {"services: {a: {image: i, cgroup: host}}", []string{"cgroup"}},
		"another control group":          {"services: {a: {image: i, cgroup_parent: /x}}", []string{"cgroup_parent"}},
		"the host's network":             {"services: {a: {image: i, network_mode: host}}", []string{"network_mode"}},
		"another's network":              {"services: {a: {image: i, network_mode: 'container:x'}}", []string{"network_mode"}},
		"a network by its name":          {"services: {a: {image: i, network_mode: x}}", []string{"network_mode"}},
		"an external network":            {"services: {a: {image: i, networks: [n]}}\nnetworks: {n: {external: true}}", []string{"networks.n.external"}},
		"a network of the host's":        {"services: {a: {image: i, networks: [n]}}\nnetworks: {n: {driver: macvlan, driver_opts: {parent: eth0}}}", []string{"networks.n.driver", "networks.n.driver_opts.parent"}},
		"another address giver":          {"services: {a: {image: i, networks: [n]}}\nnetworks: {n: {ipam: {driver: x}}}", []string{"networks.n.ipam.driver"}},
		"IPv6 on an internal one":        {"services: {a: {image: i, networks: [n]}}\nnetworks: {n: {enable_ipv6: true}}", []string{"networks.n.enable_ipv6"}},
		"IPv6 in a container":            {"services: {a: {image: i, sysctls: {net.ipv6.conf.all.disable_ipv6: 0}}}", []string{"sysctls.net.ipv6.conf.all.disable_ipv6"}},
		"options of an interface":        {"services: {a: {image: i, networks: {n: {driver_opts: {a: b}}}}}\nnetworks: {n: }", []string{"networks.n.driver_opts"}},
		"raw sockets":                    {"services: {a: {image: i, cap_add: [CAP_NET_RAW]}}", []string{"cap_add"}},
		"raw sockets of a guest":         {"services: {a: {image: i, network_mode: 'service:b', cap_add: [NET_RAW]}, b: {image: i, network_mode: 'service:c'}, c: {image: i}}", []string{"cap_add"}},
		"a capability":                   {"services: {a: {image: i, cap_add: [sys_admin, NET_ADMIN]}}", []string{"cap_add", "cap_add"}},
		"all capabilities":               {"services: {a: {image: i, cap_add: [ALL]}}", []string{"cap_add"}},
		"no seccomp":                     {"services: {a: {image: i, security_opt: ['seccomp:unconfined', apparmor=unconfined]}}", []string{"security_opt", "security_opt"}},
		"a device":                       {"services: {a: {image: i, devices: ['/dev/fuse']}}", []string{"devices"}},
		"devices by rule":                {"services: {a: {image: i, device_cgroup_rules: ['a *:* rwm']}}", []string{"device_cgroup_rules"}},
		"GPUs":                           {"services: {a: {image: i, gpus: all}}", []string{"gpus"}},
		"GPUs by deploy":                 {"services: {a: {image: i, deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}}}", []string{"deploy.resources.reservations.devices"}},
		"the Docker socket":              {"services: {a: {image: i, volumes: ['/var/run/docker.sock:/x']}}", []string{"volumes"}},
		"the socket, read-only":          {"services: {a: {image: i, volumes: ['/run/docker.sock:/x:ro']}}", []string{"volumes"}},
		"the socket by name":             {"services: {a: {image: i, use_api_socket: true}}", []string{"use_api_socket"}},
		"the root":                       {"services: {a: {image: i, volumes: ['/:/host:ro']}}", []string{"volumes"}},
		"writable mounts below":          {"services: {a: {image: i, volumes: [{type: bind, source: ., target: /x, read_only: true, bind: {recursive: writable}}]}}", []string{"volumes"}},
		"a folder outside":               {"services: {a: {image: i, volumes: ['%s:/x:ro']}}", []string{"volumes"}},
		"a folder above":                 {"services: {a: {image: i, volumes: ['..:/x:ro']}}", []string{"volumes"}},
		"a link to outside":              {"services: {a: {image: i, volumes: ['./link:/x:ro']}}", []string{"volumes"}},
		"a path through a link":          {"services: {a: {image: i, volumes: ['./link/none/deeper:/x:ro']}}", []string{"volumes"}},
		"what is writable":               {"services: {a: {image: i, volumes: ['.:/x']}}", []string{"volumes"}},
		"mounts on the host":             {"services: {a: {image: i, volumes: [{type: bind, source: ., target: /x, read_only: true, bind: {propagation: rshared}}]}}", []string{"volumes"}},
		"an external volume":             {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {external: true}}", []string{"volumes"}},
		"a mount in disguise":            {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {type: none, o: bind, device: /etc}}}", driverOpts},
		"a bind that is a tmpfs":         {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {type: tmpfs, o: bind, device: /etc}}}", driverOpts[:2]},
		"a read-only one":                {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {type: tmpfs, o: 'bind,ro', device: /run}}}", driverOpts[:2]},
		"a bind of many names":           {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {type: tmpfs, device: tmpfs, o: 'size=1m,rbind,move,remount,BIND'}}}", []string{driverOpts[1], driverOpts[1], driverOpts[1], driverOpts[1]}},
		"a remount":                      {"services: {a: {image: i, volumes: ['.:/data:ro'], tmpfs: ['/x:remount,rw']}}", []string{"tmpfs"}},
		"a tmpfs that is a bind":         {"services: {a: {image: i, tmpfs: ['/x:bind,dev,exec', '/y:size=1m,suid,shared']}}", []string{"tmpfs", "tmpfs", "tmpfs", "tmpfs"}},
		"options of no tmpfs":            {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {o: 'size=1m'}}}", driverOpts[1:2]},
		"a network's volume":             {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {type: nfs, o: 'addr=10.0.0.1', device: ':/x'}}}", driverOpts},
		"an unknown option":              {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver_opts: {mountpoint: /x}}}", []string{"volumes.vol.driver_opts.mountpoint"}},
		"an external volume to be read":  {"services: {a: {image: i, volumes: ['vol:/x:ro']}}\nvolumes: {vol: {external: true}}", []string{"volumes"}},
		"annotations":                    {"services: {a: {image: i, annotations: {io.katacontainers.config_path: /x}}}", []string{"annotations"}},
		"a name server":                  {"services: {a: {image: i, dns: [127.0.0.1, 8.8.8.8]}}", []string{"dns"}},
		"real-time processes":            {"services: {a: {image: i, cpu_rt_runtime: 5000, ulimits: {rtprio: 9, nice: 20}}}", []string{"cpu_rt_runtime", "ulimits.nice", "ulimits.rtprio"}},
		"real-time processes, loudly":    {"services: {a: {image: i, ulimits: {RTPRIO: 9, Nice: 20}}}", []string{"ulimits.Nice", "ulimits.RTPRIO"}},
		"endless words in memory":        {"services: {a: {image: i, logging: {options: {max-size: 1m, compress: 'true', tag: '{{pad \"x\" 9 9}}', mode: non-blocking, max-buffer-size: 100g}}}}", []string{"logging.options.max-buffer-size", "logging.options.tag"}},
		"the host's settings":            {"services: {a: {image: i, sysctls: {vm.overcommit_memory: 1, kernel/core_pattern: '|/x'}}}", []string{"sysctls.kernel/core_pattern", "sysctls.vm.overcommit_memory"}},
		"sysctls by a detour":            {"services: {a: {image: i, sysctls: {net/../kernel/core_pattern: '|/x'}}}", []string{"sysctls.net/../kernel/core_pattern"}},
		"no end of processes":            {"services: {a: {image: i, pids_limit: -1}}", []string{"pids_limit"}},
		"no end of processes, by deploy": {"services: {a: {image: i, deploy: {resources: {limits: {pids: -1}}}}}", []string{"deploy.resources.limits.pids"}},
		"as many processes as a machine": {"services: {a: {image: i, pids_limit: 32768}}", []string{"pids_limit"}},
		"as many processes as can be":    {"services: {a: {image: i, pids_limit: 4194304, deploy: {resources: {limits: {pids: 4194304}}}}}", []string{"pids_limit", "deploy.resources.limits.pids"}},
		"no end of swap":                 {"services: {a: {image: i, memswap_limit: -1}}", []string{"memswap_limit"}},
		"SELinux labels":                 {"services: {a: {image: i, volumes: ['./x:/x:ro,z']}}", []string{"volumes.0.bind.selinux"}},
		"link-local addresses":           {"services: {a: {image: i, networks: {n: {link_local_ips: [169.254.169.254]}}}}\nnetworks: {n: }", []string{"networks.n.link_local_ips"}},
		"options of addresses":           {"services: {a: {image: i, networks: [n]}}\nnetworks: {n: {ipam: {options: {a: b}}}}", []string{"networks.n.ipam.options"}},
		"the storage driver":             {"services: {a: {image: i, storage_opt: {size: 1g, other: x}}}", []string{"storage_opt.other"}},
		"a volume's driver":              {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver: d}}", []string{"volumes.vol.driver"}},
		"another's volumes":              {"services: {a: {image: i, volumes_from: ['container:x']}}", []string{"volumes_from"}},
		"another's name":                 {"services: {a: {image: i, external_links: [x]}}", []string{"external_links"}},
		"a secret outside":               {"services: {a: {image: i, secrets: [s]}}\nsecrets: {s: {file: /etc/shadow}}", []string{"secrets.s.file"}},
		"a config outside":               {"services: {a: {image: i, configs: [s]}}\nconfigs: {s: {file: ../x}}", []string{"configs.s.file"}},
		"no end at out of memory":        {"services: {a: {image: i, oom_kill_disable: true}}", []string{"oom_kill_disable"}},
		"the host's programs end":        {"services: {a: {image: i, oom_score_adj: -5}}", []string{"oom_score_adj"}},
		"another runtime":                {"services: {a: {image: i, runtime: nvidia}}", []string{"runtime"}},
		"logs to elsewhere":              {"services: {a: {image: i, logging: {driver: syslog}}}", []string{"logging.driver"}},
		"a privileged hook":              {"services: {a: {image: i, post_start: [{command: a, privileged: true}]}}", []string{"post_start.0.privileged"}},
		"a build's network":              {"services: {a: {build: {context: ., network: host}}}", []string{"build.network"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t, map[string]string{"compose.yaml": strings.ReplaceAll(tt.file, "%s", outside)})
			if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			src := fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}
			_, err := Load(t.Context(), "box", src)
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Fatalf("got %v", err)
			}
			for _, key := range tt.keys {
				if !strings.Contains(err.Error(), "compose.yaml:") || !strings.Contains(err.Error(), key+": ") || !strings.Contains(err.Error(), "--allow-") {
					t.Errorf("%s is not in the error: %v", key, err)
				}
			}
			src.AllowUnsafe = true
			p, err := Load(t.Context(), "box", src)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, c := range p.Apply(Policy{}) {
				if c.Unsafe {
					keys = append(keys, c.Key)
				}
			}
			if !reflect.DeepEqual(keys, tt.keys) {
				t.Errorf("the notes are about %q, want %q", keys, tt.keys)
			}
		})
	}
}

func TestLoad_harmless(t *testing.T) {
	loadGood(t, `
services:
  a:
    image: i
    cap_add: [CHOWN, cap_sys_ptrace, IPC_LOCK]
    cap_drop: [KILL]
    security_opt: ["no-new-privileges:false", "seccomp=builtin"]
    volumes: ["./x:/x:ro", ".:/y:ro", "/etc/localtime:/etc/localtime:ro", "vol:/v", "tmp:/t", "/anonymous"]
    sysctls: {net.core.somaxconn: 1}
    runtime: runc
    oom_score_adj: 100
    logging: {driver: local}
    secrets: [s]
    ulimits: {nofile: 5}
    tmpfs: ["/run:size=64m,mode=1777,uid=5,gid=6,exec,nosuid,nodev,noatime,ro", /plain]
    extra_hosts: ["a:1.2.3.4"]
    deploy: {update_config: {parallelism: 1}, endpoint_mode: dnsrr, mode: global, restart_policy: {condition: on-failure, max_attempts: 2}}
    develop: {watch: []}
    x-anything: 1
  b: {image: i, network_mode: none, ipc: shareable}
  c: {image: i, network_mode: "service:a", ipc: "service:b", pid: "service:a"}
  d: {image: i, network_mode: bridge, cap_add: [NET_RAW]}
secrets: {s: {file: ./s}}
volumes: {vol: {}, tmp: {driver_opts: {type: tmpfs, device: tmpfs, o: "size=1m,mode=1777,uid=1000,nosuid,nodev,noexec"}}}
`, fumehood.Compose{})
}

func TestApply_seccomp(t *testing.T) {
	for _, tt := range []struct{ name, options, want, from string }{
		{"none", "[]", "", ""},
		{"builtin", "['seccomp=builtin']", "", "seccomp=builtin"},
		{"colon", "['seccomp:builtin', 'apparmor=docker-default']", "apparmor=docker-default", "seccomp=builtin"},
		{"unconfined", "['seccomp:unconfined']", "seccomp:unconfined", ""},
		{"file", "['seccomp=builtin.json']", "seccomp=builtin.json", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, changes := applied(t, "services: {a: {image: i, security_opt: "+tt.options+"}}", fumehood.Compose{AllowUnsafe: true}, Policy{})
			opts := slices.DeleteFunc(p.project.Services["a"].SecurityOpt, func(opt string) bool { return opt == "no-new-privileges=true" })
			if got := strings.Join(opts, " "); got != tt.want {
				t.Errorf("got %q", got)
			}
			if got := slices.ContainsFunc(changes, func(c Change) bool { return c.Key == "security_opt" && c.From != "" }); got != (tt.from != "") {
				t.Errorf("the changes are %v", changes)
			}
			again := p.Apply(Policy{})
			if len(again) != len(changes) {
				t.Errorf("the second Apply returned %v", again)
			}
		})
	}
}

func TestLoad_containerNames(t *testing.T) {
	p := loadGood(t, `
services:
  a: {image: i, container_name: box}
  b: {image: i, network_mode: "container:box", ipc: "container:box", volumes_from: ["container:box:ro"]}
`, fumehood.Compose{})
	b := p.as.Services["b"]
	if b.NetworkMode != "service:a" || b.Ipc != "service:a" || b.VolumesFrom[0] != "a:ro" {
		t.Errorf("service b is %+v", b)
	}
	if _, ok := b.DependsOn["a"]; !ok {
		t.Error("b does not depend on a")
	}
}

// applied loads a project and applies a policy.
func applied(t *testing.T, file string, src fumehood.Compose, pol Policy) (*Project, []Change) {
	t.Helper()
	p := loadGood(t, file, src)
	return p, p.Apply(pol)
}

// has reports whether changes include one of a service's key.
func has(changes []Change, service, key string) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { return c.Service == service && c.Key == key })
}

func TestApply_internal(t *testing.T) {
	const file = "services: {a: {image: i}, b: {image: i, networks: [closed]}, c: {image: i, network_mode: bridge}, d: {image: i, dns: 10.0.0.1}}\nnetworks: {closed: {internal: true, name: shared}}\n"
	for _, tt := range []struct {
		name, file, egress string
		internal           bool
	}{
		{"by default", file, "", true},
		{"the run says so", file, fumehood.EgressInternet, false},
		{"the project says so", file + "x-fumehood: {egress: internet}\n", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, changes := applied(t, tt.file, fumehood.Compose{Egress: tt.egress, AllowUnsafe: true}, Policy{})
			open, closed := p.project.Networks["default"], p.project.Networks["closed"]
			if open.Internal != tt.internal || p.Internal() != tt.internal || has(changes, "", "networks.default.internal") != tt.internal {
				t.Errorf("the default network is %+v, the changes are %v", open, changes)
			}
			if got := open.DriverOpts[inhibitIPv4]; got != map[bool]string{true: "true"}[tt.internal] {
				t.Errorf("%s is %q", inhibitIPv4, got)
			}
			if closed.EnableIPv6 == nil || *closed.EnableIPv6 {
				t.Error("the closed network may have IPv6")
			}
			if !closed.Internal || closed.DriverOpts[inhibitIPv4] != "true" || closed.Name != "box.closed" {
				t.Errorf("the closed network is %+v", closed)
			}
			for service, want := range map[string]types.StringList{"b": {noResolver}, "c": nil, "d": {"10.0.0.1"}} {
				if got := p.project.Services[service].DNS; !reflect.DeepEqual(got, want) {
					t.Errorf("%s: name servers %v, want %v", service, got, want)
				}
			}
			if got := p.project.Services["a"].DNS; (len(got) == 1) != tt.internal {
				t.Errorf("a: name servers %v", got)
			}
		})
	}
}

func TestApply_subnets(t *testing.T) {
	p := loadGood(t, `
services:
  a: {image: i, scale: 20, networks: [x, fixed]}
  b: {image: i, networks: [x, y]}
networks:
  x: {}
  y: {ipam: {config: [{gateway: 10.0.0.1}]}}
  fixed: {ipam: {config: [{subnet: 172.28.0.0/24}]}}
  unused: {}
`, fumehood.Compose{})
	if got := p.NetworksNeeded(); !reflect.DeepEqual(got, []int{24, 4}) {
		t.Errorf("NetworksNeeded returned %v", got)
	}
	p.Apply(Policy{Subnets: []netip.Prefix{netip.MustParsePrefix("10.201.0.0/27"), netip.MustParsePrefix("10.201.0.32/28")}})
	p.Apply(Policy{Subnets: []netip.Prefix{netip.MustParsePrefix("10.202.0.0/27"), netip.MustParsePrefix("10.202.0.32/28")}})
	for key, want := range map[string]string{"x": "10.202.0.0/27", "y": "10.202.0.32/28", "fixed": "172.28.0.0/24"} {
		if got := p.project.Networks[key].Ipam.Config[0].Subnet; got != want {
			t.Errorf("%s has %s, want %s", key, got, want)
		}
	}
	if len(p.project.Networks) != 3 {
		t.Errorf("there are %d networks", len(p.project.Networks))
	}
}

func TestApply_ports(t *testing.T) {
	const file = `
services:
  a:
    image: i
    ports: ["8008:80", "0.0.0.0:9000:90", "70", "127.0.0.2:1000-1001:10-11"]
`
	tests := []struct {
		name, file, egress string
		ports              []string
		forward            []fumehood.Port
	}{
		{"forwarded", file, "", nil, []fumehood.Port{
			{Container: 80, Protocol: "tcp", Address: "127.0.0.1"},
			{Container: 90, Protocol: "tcp", Address: "127.0.0.1"},
			{Container: 70, Protocol: "tcp", Address: "127.0.0.1"},
			{Container: 10, Protocol: "tcp", Address: "127.0.0.1"},
			{Container: 11, Protocol: "tcp", Address: "127.0.0.1"},
		}},
		{"forwarded as they are", file + "x-fumehood: {keep_ports: true}\n", "", nil, []fumehood.Port{
			{Host: 8008, Container: 80, Protocol: "tcp", Address: "127.0.0.1"},
			{Host: 9000, Container: 90, Protocol: "tcp", Address: "0.0.0.0"},
			{Container: 70, Protocol: "tcp", Address: "127.0.0.1"},
			{Host: 1000, Container: 10, Protocol: "tcp", Address: "127.0.0.2"},
			{Host: 1001, Container: 11, Protocol: "tcp", Address: "127.0.0.2"},
		}},
		{"published", file, fumehood.EgressInternet, []string{"127.0.0.1::80/tcp", "127.0.0.1::90/tcp", "127.0.0.1::70/tcp", "127.0.0.1::10/tcp", "127.0.0.1::11/tcp"}, nil},
		{"published as they are", file + "x-fumehood: {keep_ports: true}\n", fumehood.EgressInternet, []string{"127.0.0.1:8008:80/tcp", "0.0.0.0:9000:90/tcp", "127.0.0.1::70/tcp", "127.0.0.2:1000:10/tcp", "127.0.0.2:1001:11/tcp"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, changes := applied(t, tt.file, fumehood.Compose{Egress: tt.egress, AllowUnsafe: true}, Policy{})
			var ports []string
			for _, port := range p.project.Services["a"].Ports {
				ports = append(ports, portText(port))
			}
			if !reflect.DeepEqual(ports, tt.ports) || !reflect.DeepEqual(p.forward["a"], tt.forward) {
				t.Errorf("published %v, forwarded %v", ports, p.forward["a"])
			}
			if !has(changes, "a", "ports") {
				t.Error("the change is not reported")
			}
		})
	}
}

func TestApply_names(t *testing.T) {
	p, changes := applied(t, `
services:
  a: {image: i, container_name: fixed, networks: {n: , m: {aliases: [other]}}, volumes: ["vol:/v"]}
  b: {image: i, container_name: alone, network_mode: none}
networks: {n: , m: }
volumes: {vol: {name: shared}}
`, fumehood.Compose{}, Policy{Labels: Labels{"fumehood.owner": "me"}, ConfigFile: "/state/compose.yaml"})
	a, b := p.project.Services["a"], p.project.Services["b"]
	if a.ContainerName != "" || b.ContainerName != "" || !has(changes, "a", "container_name") || !has(changes, "b", "container_name") {
		t.Errorf("the container names are %q and %q", a.ContainerName, b.ContainerName)
	}
	if got := fmt.Sprint(a.Networks["n"].Aliases, a.Networks["m"].Aliases); got != "[fixed] [other fixed]" {
		t.Errorf("the aliases are %s", got)
	}
	if v := p.project.Volumes["vol"]; v.Name != "box.vol" || v.Labels["fumehood.owner"] != "me" || !has(changes, "", "volumes.vol.name") {
		t.Errorf("the volume is %+v", v)
	}
	if a.Labels["fumehood.owner"] != "me" || p.project.Networks["n"].Labels["fumehood.owner"] != "me" {
		t.Error("a label is missing")
	}
	if a.CustomLabels["com.docker.compose.project.config_files"] != "/state/compose.yaml" || a.CustomLabels["com.docker.compose.service"] != "a" {
		t.Errorf("Compose's labels are %v", a.CustomLabels)
	}
	if got := p.Services()[0].Containers; got[0] != "box-a-1" {
		t.Errorf("the containers are %v", got)
	}
}

func TestApply_idleService(t *testing.T) {
	for _, tt := range []struct {
		service string
		image   Image
		want    bool
	}{
		{"command: sleep infinity", Image{}, true},
		{"command: [sleep, inf]", Image{}, true},
		{"command: sleep 100d", Image{}, true},
		{"command: sleep 99999999", Image{}, true},
		{"command: /bin/sleep 24h", Image{}, true},
		{"command: sleep 3600", Image{}, false},
		{"command: sleep 1d 1s", Image{}, false},
		{"command: sleep", Image{}, false},
		{"command: tail -f /dev/null", Image{}, true},
		{"command: tail -f /var/log/x", Image{}, false},
		{"command: sh -c 'sleep infinity'", Image{}, true},
		{"command: ['/bin/bash', '-c', 'exec tail -F /dev/null;']", Image{}, true},
		{"command: sh -c 'while true; do sleep 1; done'", Image{}, true},
		{"command: sh -c 'touch /x && sleep infinity'", Image{}, false},
		{"command: sh -c 'sleep infinity &'", Image{}, false},
		{"command: sh -c 'sleep $$X'", Image{}, false},
		{"command: sh /start.sh", Image{}, false},
		{"command: tini -- sleep infinity", Image{}, true},
		{"entrypoint: [/usr/bin/dumb-init, --], command: [tail, -f, /dev/null]", Image{}, true},
		{"entrypoint: sleep, command: infinity", Image{}, true},
		{"entrypoint: /entry.sh, command: sleep infinity", Image{}, false},
		{"command: sleep infinity", Image{Entrypoint: []string{"/docker-entrypoint.sh"}}, false},
		{"command: sleep infinity", Image{Entrypoint: []string{"/sbin/tini", "-g", "--"}}, true},
		{"command: sleep infinity, entrypoint: []", Image{Entrypoint: []string{"/docker-entrypoint.sh"}}, true},
		{"entrypoint: [sleep, infinity]", Image{Entrypoint: []string{"/x"}, Command: []string{"y"}}, true},
		{"entrypoint: []", Image{Entrypoint: []string{"/x"}, Command: []string{"sleep", "infinity"}}, true},
		{"command: []", Image{Entrypoint: []string{"sleep", "infinity"}, Command: []string{"y"}}, true},
		{"user: a", Image{Command: []string{"sleep", "infinity"}}, true},
		{"user: a", Image{Command: []string{"python3"}}, false},
		{"user: a", Image{}, false},
		{"command: sleep infinity, pid: 'service:b'", Image{}, false},
		{"command: sleep infinity, image: lent", Image{}, false},
	} {
		t.Run(tt.service, func(t *testing.T) {
			image := "image: i, "
			other := ""
			if strings.Contains(tt.service, "image:") {
				image, other = "", ", pid: 'service:a'"
			}
			p, changes := applied(t, "services: {a: {"+image+tt.service+"}, b: {image: i"+other+"}}", fumehood.Compose{},
				Policy{Volume: "guest", Serve: true, Images: map[string]Image{"a": tt.image}})
			a := p.project.Services["a"]
			if got := has(changes, "a", "command"); got != tt.want || p.serve["a"] != tt.want || p.Services()[0].Serves != tt.want {
				t.Errorf("replaced: %v, served: %v", got, p.serve["a"])
			}
			if tt.want {
				if !reflect.DeepEqual(a.Entrypoint, types.ShellCommand{GuestProgram, "serve"}) || a.Command == nil || len(a.Command) > 0 || !a.StdinOpen || a.Logging.Driver != "none" || a.Init != nil {
					t.Errorf("service a is %+v", a)
				}
			} else if a.Pid == "" && (a.Init == nil || !*a.Init) {
				t.Error("the service has no init")
			}
		})
	}
}

func TestProject_emptyProgram(t *testing.T) {
	image := Image{Entrypoint: []string{"entry"}, Command: []string{"cmd"}}
	for keys, c := range map[string]struct {
		image               Image
		entrypoint, command types.ShellCommand // for the Engine
		program             string
	}{
		"user: u":                       {image, nil, nil, "entry cmd"},
		"command: null":                 {image, nil, nil, "entry cmd"},
		"command: []":                   {image, types.ShellCommand{"entry"}, types.ShellCommand{}, "entry"},
		"command: ''":                   {image, types.ShellCommand{"entry"}, types.ShellCommand{}, "entry"},
		"entrypoint: []":                {image, types.ShellCommand{}, nil, "cmd"},
		"entrypoint: ''":                {image, types.ShellCommand{}, nil, "cmd"},
		"entrypoint: x":                 {image, types.ShellCommand{"x"}, nil, "x"},
		"entrypoint: x, command: []":    {image, types.ShellCommand{"x"}, types.ShellCommand{}, "x"},
		"entrypoint: [], command: x":    {image, types.ShellCommand{}, types.ShellCommand{"x"}, "x"},
		"entrypoint: [], command: []":   {image, nil, nil, ""},
		"command: [], restart: 'no'":    {Image{Command: []string{"cmd"}}, nil, nil, ""},
		"entrypoint: [], restart: 'no'": {Image{Entrypoint: []string{"entry"}}, nil, nil, ""},
	} {
		images := map[string]Image{"a": c.image}
		p, _ := applied(t, "services:\n  a: {image: i, "+keys+"}", fumehood.Compose{}, Policy{Volume: "guest", Serve: true, Images: images})
		err := p.CheckPrograms(images)
		a := p.as.Services["a"]
		if got := strings.Join(mainProgram(&a, c.image), " "); got != c.program || (err == nil) != (c.program != "") {
			t.Errorf("%s: got the program %q, %v", keys, got, err)
		}
		if err != nil && (!errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), "compose.yaml:2: services.a.")) {
			t.Errorf("%s: %v", keys, err)
		}
		if a := p.project.Services["a"]; err == nil && (!reflect.DeepEqual(a.Entrypoint, c.entrypoint) || !reflect.DeepEqual(a.Command, c.command)) {
			t.Errorf("%s: got %q, %q", keys, a.Entrypoint, a.Command)
		}
	}
}

func TestApply_idleNotServed(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		pol  Policy
		want []string
	}{
		"kept":                 {"services: {a: {image: i, command: sleep infinity}}", Policy{Volume: "guest"}, []string{GuestProgram}},
		"of several":           {"services: {a: {image: i, command: sleep infinity, scale: 2}}", Policy{Volume: "guest", Serve: true}, []string{GuestProgram}},
		"with engine commands": {"services: {a: {image: i, command: sleep infinity}}", Policy{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := applied(t, tt.file, fumehood.Compose{}, tt.pol)
			if a := p.project.Services["a"]; !slices.Equal(a.Entrypoint, tt.want) || p.serve["a"] || a.StdinOpen {
				t.Errorf("service a is %+v", a)
			}
		})
	}
}

func TestApply_init(t *testing.T) {
	p, changes := applied(t, "services: {a: {image: i, init: false}, b: {image: i, init: true}}", fumehood.Compose{}, Policy{Volume: "guest"})
	if *p.project.Services["a"].Init || !*p.project.Services["b"].Init || has(changes, "a", "init") || has(changes, "b", "init") {
		t.Errorf("the changes are %v", changes)
	}
}

func TestApply_limits(t *testing.T) {
	def := fumehood.Limits{Memory: 1 << 30, CPUs: 2, PIDs: 100}
	for _, tt := range []struct {
		service      string
		limits       fumehood.Limits
		memory, swap int64
		pids         int64
		cpus         float32
	}{
		{"user: a", def, 1 << 30, 1 << 30, 100, 2},
		{"user: a", fumehood.Limits{}, fumehood.DefaultMemory, fumehood.DefaultMemory, fumehood.DefaultPIDs, 0},
		{"user: a", fumehood.Limits{Memory: fumehood.NoLimit, PIDs: fumehood.NoLimit}, 0, 0, 0, 0},
		{"mem_limit: 64m, pids_limit: 50, cpus: 0.5", def, 64 << 20, 64 << 20, 50, 0.5},
		{"mem_limit: 64m, memswap_limit: 128m, pids_limit: 48", def, 64 << 20, 128 << 20, 48, 2},
		{"deploy: {resources: {limits: {memory: 64m, cpus: '0.5', pids: 60}}}", def, 64 << 20, 64 << 20, 60, 0.5},
		{"deploy: {resources: {limits: {cpus: '0.5'}}}", def, 1 << 30, 1 << 30, 100, 0.5},
		{"mem_reservation: 4g", fumehood.Limits{}, 4 << 30, 4 << 30, fumehood.DefaultPIDs, 0},
		{"deploy: {resources: {reservations: {memory: 4g}}}", fumehood.Limits{}, 4 << 30, 4 << 30, fumehood.DefaultPIDs, 0},
		{"mem_reservation: 4g", def, 1 << 30, 1 << 30, 100, 2},
		{"deploy: {resources: {reservations: {memory: 4g}}}", def, 1 << 30, 1 << 30, 100, 2},
		{"mem_limit: 4g, pids_limit: 5000, cpus: 8", def, 1 << 30, 1 << 30, 100, 2},
		{"mem_limit: 4g, pids_limit: 5000, cpus: 8", fumehood.Limits{}, 4 << 30, 4 << 30, 5000, 8},
		{"mem_limit: 4g, pids_limit: 5000, cpus: 8", fumehood.Limits{Memory: fumehood.NoLimit, PIDs: fumehood.NoLimit, CPUs: fumehood.NoLimit}, 4 << 30, 4 << 30, 5000, 8},
		{"mem_limit: 512m, memswap_limit: 4g", def, 512 << 20, 512 << 20, 100, 2},
		{"mem_limit: 512m, memswap_limit: -1", def, 512 << 20, 512 << 20, 100, 2},
		{"pids_limit: -1", def, 1 << 30, 1 << 30, 100, 2},
		{"mem_limit: 4g, deploy: {resources: {limits: {memory: 4g, cpus: '8', pids: 5000}}}", def, 1 << 30, 1 << 30, 100, 2},
		{"deploy: {resources: {limits: {pids: -1}}}", def, 1 << 30, 1 << 30, 100, 2},
		{"cpu_quota: 800000", def, 1 << 30, 1 << 30, 100, 2},
		{"cpu_quota: 50000, cpu_period: 10000", def, 1 << 30, 1 << 30, 100, 2},
		{"cpu_period: 1000", def, 1 << 30, 1 << 30, 100, 2},
		{"cpu_quota: 50000", def, 1 << 30, 1 << 30, 100, 0}, // half a CPU
	} {
		t.Run(tt.service, func(t *testing.T) {
			p, _ := applied(t, "services: {a: {image: i, "+tt.service+"}}", fumehood.Compose{AllowUnsafe: true}, Policy{Limits: tt.limits})
			a := p.project.Services["a"]
			if quota := tt.service == "cpu_quota: 50000"; quota != (a.CPUQuota > 0) {
				t.Errorf("the quota is %d of %d", a.CPUQuota, a.CPUPeriod)
			}
			if reserved := int64(a.MemReservation); tt.memory > 0 && reserved > tt.memory {
				t.Errorf("%d bytes are reserved", reserved)
			}
			memory, pids, cpus := int64(a.MemLimit), a.PidsLimit, a.CPUS
			if a.Deploy != nil && a.Deploy.Resources.Limits != nil { // these override the service's own in the Engine
				memory, pids, cpus = int64(a.Deploy.Resources.Limits.MemoryBytes), a.Deploy.Resources.Limits.Pids, float32(a.Deploy.Resources.Limits.NanoCPUs)
			}
			if memory != tt.memory || int64(a.MemSwapLimit) != tt.swap || pids != tt.pids || cpus != tt.cpus {
				t.Errorf("memory %d, swap %d, processes %d, CPUs %v", memory, a.MemSwapLimit, pids, cpus)
			}
			out, err := p.YAML()
			if err != nil {
				t.Fatal(err)
			}
			loadGood(t, string(out), fumehood.Compose{AllowUnsafe: true})
		})
	}
}

func TestApply_capabilities(t *testing.T) {
	idle, busy := strings.Join(capabilities, " "), strings.Join(serviceCapabilities, " ")
	for _, tt := range []struct {
		service         string
		drop, add, opts string
		unsafe          bool
	}{
		{"command: sleep infinity", "ALL", idle, "no-new-privileges=true", false},
		{"command: serve", "ALL", busy, "no-new-privileges=true", false},
		{"command: serve, cap_drop: [ALL], cap_add: [CHOWN]", "ALL", "CHOWN", "no-new-privileges=true", false},
		{"command: serve, cap_drop: [cap_chown], cap_add: [MKNOD, KILL]", "ALL", "MKNOD KILL " + strings.ReplaceAll(strings.ReplaceAll(busy, "CHOWN ", ""), "KILL ", ""), "no-new-privileges=true", false},
		{"command: serve, security_opt: ['no-new-privileges:false']", "ALL", busy, "no-new-privileges:false", false},
		{"command: serve, cap_add: [ALL]", "", "ALL", "no-new-privileges=true", true},
		{"command: serve, privileged: true", "", "", "", true},
	} {
		t.Run(tt.service, func(t *testing.T) {
			p, _ := applied(t, "services: {a: {image: i, "+tt.service+"}}", fumehood.Compose{AllowUnsafe: tt.unsafe}, Policy{Volume: "guest"})
			a := p.project.Services["a"]
			if strings.Join(a.CapDrop, " ") != tt.drop || strings.Join(a.CapAdd, " ") != tt.add || strings.Join(a.SecurityOpt, " ") != tt.opts {
				t.Errorf("dropped %v, added %v, options %v", a.CapDrop, a.CapAdd, a.SecurityOpt)
			}
		})
	}
}

func TestApply_logging(t *testing.T) {
	for service, want := range map[string]string{
		"command: serve": "json-file map[max-file:1 max-size:10m]",
		"command: serve, logging: {driver: local, options: {max-size: 1k}}":                      "local map[max-size:1k]",
		"command: serve, logging: {options: {max-file: '3', tag: x}}":                            "json-file map[max-file:3 max-size:10m tag:x]",
		"command: serve, logging: {options: {compress: 'true'}}":                                 "json-file map[compress:true max-file:2 max-size:10m]",
		"command: serve, logging: {options: {max-size: 1000g, max-file: '99'}}":                  "json-file map[max-file:10 max-size:104857600]",
		"command: serve, logging: {options: {max-size: '-1', max-file: '-1'}}":                   "json-file map[max-file:10 max-size:104857600]",
		"command: serve, logging: {driver: local, options: {max-size: 1000g, max-file: '1000'}}": "local map[max-file:10 max-size:104857600]",
		"command: serve, logging: {driver: none}":                                                "none map[]",
	} {
		t.Run(service, func(t *testing.T) {
			p, _ := applied(t, "services: {a: {image: i, "+service+"}}", fumehood.Compose{}, Policy{})
			l := p.project.Services["a"].Logging
			if got := fmt.Sprint(l.Driver, " ", map[string]string(l.Options)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestApply_mounts(t *testing.T) {
	p, _ := applied(t, "services: {a: {image: i, volumes: ['./x:/x:ro']}, b: {image: i}}", fumehood.Compose{}, Policy{
		Volume: "guest", Sockets: func(service string) string { return map[string]string{"a": "/sockets/a"}[service] },
	})
	var got []string
	for _, v := range p.project.Services["a"].Volumes {
		got = append(got, v.Target)
		if v.Type == types.VolumeTypeBind && bool(v.Bind.CreateHostPath) {
			t.Errorf("%s would be created", v.Source)
		}
		if !v.ReadOnly {
			t.Errorf("%s is writable", v.Target)
		}
	}
	if !slices.Equal(got, []string{"/x", GuestDir, SocketDir}) {
		t.Errorf("the mount points are %v", got)
	}
	if n := len(p.project.Services["b"].Volumes); n != 1 {
		t.Errorf("b has %d mounts", n)
	}
}

func TestApply_twice(t *testing.T) {
	p := loadGood(t, `
services:
  a: {image: i, container_name: fixed, ports: ["1:1"], command: sleep infinity, networks: {default: {aliases: [y]}}, volumes: ["./x:/x:ro"], logging: {options: {max-size: 1m}}, deploy: {resources: {limits: {cpus: "1"}}}}
`, fumehood.Compose{})
	pol := Policy{Volume: "guest", Serve: true, Labels: Labels{"fumehood.owner": "me"}}
	first := p.Apply(pol)
	one, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	second := p.Apply(pol)
	two, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if string(one) != string(two) || !reflect.DeepEqual(first, second) {
		t.Errorf("first %v:\n%s\nthen %v:\n%s", first, one, second, two)
	}
}

func TestApply_builtImage(t *testing.T) {
	p, _ := applied(t, "services: {a: {build: .}, b: {image: i, pull_policy: always}}", fumehood.Compose{}, Policy{Images: map[string]Image{"a": {Ref: "sha256:1"}}})
	a, b := p.project.Services["a"], p.project.Services["b"]
	if a.Build != nil || a.Image != "sha256:1" || a.PullPolicy != types.PullPolicyNever || b.PullPolicy != "always" {
		t.Errorf("the services are %+v, %+v", a, b)
	}
}
