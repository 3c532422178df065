//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// in runs a shell command in a service.
func in(t *testing.T, sb fumehood.Sandbox, service, script string) string {
	t.Helper()
	s, err := sb.Lookup(service)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout.Text() + res.Stderr.Text())
}

func TestPod_Start(t *testing.T) {
	t.Parallel()
	startPod(t, newProvider(t, native.Options{}), "7")
}

// startPod starts the project of conformance.Shop, whose database is of a user, and looks at what only pods share.
func startPod(t *testing.T, p *native.Provider, user string) {
	t.Helper()
	sb := start(t, p, fumehood.Spec{Compose: composeFile(t, conformance.Shopping(busybox, user))})
	conformance.Shop(t, sb, user, "shop")
	for name, c := range map[string]struct{ service, script, want string }{
		"one network":        {"migrate", "readlink /proc/self/ns/net", in(t, sb, "db", "readlink /proc/self/ns/net")},
		"own host names":     {"web", "grep -c database /etc/hosts", "1"},
		"own user":           {"web", "readlink /proc/self/ns/user", in(t, sb, "default", "readlink /proc/self/ns/user")},
		"own PIDs":           {"web", "ls -d /proc/[0-9]* | grep -c . | awk '{print ($1 < 9)}'", "1"},
		"network of sysfs":   {"web", "ls /sys/class/net", in(t, sb, "default", "ls /sys/class/net")},
		"group is read-only": {"web", "mkdir /sys/fs/cgroup/pids/x 2>/dev/null || mkdir /sys/fs/cgroup/x 2>/dev/null || echo denied", "denied"},
	} {
		if got := in(t, sb, c.service, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if thaw, err := sb.Freeze(t.Context()); err != nil {
		t.Error(err)
	} else if err := thaw(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPod_Start_failing(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	const head = "services:\n  default: {image: " + busybox + ", command: sleep infinity"
	other := func(keys string) string { return head + "}\n  db: {image: " + busybox + ", " + keys + "}\n" }
	for name, c := range map[string]struct {
		text  string
		class error
		want  []string
	}{
		"slow check":      {other(`command: sleep 1000, healthcheck: {test: "sleep 1000", interval: 10ms, timeout: 50ms, retries: 1}`), fumehood.ErrUnavailable, []string{"it has not ended after 50ms"}},
		"no such program": {other(`command: [/nothing]`), fumehood.ErrConfig, []string{"in service db", "/nothing"}},
		"no such user":    {other(`command: sleep 1000, user: nobody-here`), fumehood.ErrConfig, []string{"in service db"}},
		"volume of files": {head + ", volumes: ['vol:/bin']}\n  db: {image: " + busybox + ", command: sleep 1000, volumes: ['vol:/v']}\nvolumes: {vol: {}}\n", fumehood.ErrUnsupported, []string{"in service default", "the image has files there"}},
		"taken port": {head + "}\n  a: {image: " + busybox + ", command: httpd -f, healthcheck: {test: 'grep -q :0050 /proc/net/tcp /proc/net/tcp6', interval: 20ms}}\n" +
			"  b: {image: " + busybox + ", command: httpd -f, depends_on: {a: {condition: service_healthy}}}\n", fumehood.ErrUnavailable, []string{"in service b", "Address already in use"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb, err := p.Start(t.Context(), fumehood.Spec{Compose: composeFile(t, c.text)})
			if err == nil {
				t.Fatalf("it started; closed: %v", sb.Close(t.Context()))
			}
			conformance.WantError(t, err, c.class)
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestPod_settings(t *testing.T) {
	t.Parallel()
	podSettings(t, newProvider(t, native.Options{}))
}

func podSettings(t *testing.T, p *native.Provider) {
	t.Helper()
	sb := start(t, p, fumehood.Spec{Compose: composeFile(t, `
services:
  default:
    image: `+busybox+`
    command: sleep infinity
    read_only: true
    shm_size: 1m
    cap_drop: [CHOWN]
    tmpfs: ["/run:size=1m,mode=0711"]
    extra_hosts: ["peer:10.1.2.3"]
    secrets: [key]
    depends_on: {failing: {condition: service_started, required: false}}
    volumes: ["shared:/a:ro", "own:/own", "/anonymous", {type: tmpfs, target: /t, tmpfs: {size: 2m}}]
  two:
    image: `+busybox+`
    command: [sh, -c, "pwd > /started; exec sleep infinity"]
    working_dir: /etc
    healthcheck: {test: pwd > /checked, interval: 20ms}
    volumes: ["shared:/b", "own2:/bin"]
  crash: {image: `+busybox+`, command: [sh, -c, "echo x >> /count; exit 1"], restart: always}
  gone: {image: `+busybox+`, command: [sh, -c, "sleep 1000 & exit 0"], cap_drop: [CHOWN]}
  failing: {image: `+busybox+`, command: 'false'}
volumes: {shared: {}, own: {}, own2: {}}
secrets: {key: {file: compose.yaml}}
`)})
	if got := in(t, sb, "two", "echo hello > /b/f; echo $(id -u) $(ls /bin | grep -c busybox)"); got != "0 1" {
		t.Errorf("in two: %q", got)
	}
	if got := in(t, sb, "two", "cat /started /checked"); got != "/etc\n/etc" {
		t.Errorf("working directories of a program and its health check: %q", got)
	}
	for script, want := range map[string]string{
		"cat /a/f; touch /a/x 2>&1":                  "hello\ntouch: /a/x: Read-only file system",
		"touch /x 2>&1":                              "touch: /x: Read-only file system",
		"touch /own/x /anonymous/x /t/x":             "",
		"df -m /dev/shm | awk 'END{print $2}'":       "1",
		"df -m /run | awk 'END{print $2}'":           "1",
		"stat -c %a /run":                            "711",
		"df -m /t | awk 'END{print $2}'":             "2",
		"grep -w peer /etc/hosts | cut -f1":          "10.1.2.3",
		"> /t/y; chown 1 /t/y 2>&-; stat -c %u /t/y": "0",
		"stat -c %u /a /t":                           "0\n0",

		"grep -c shm_size /run/secrets/key; echo > /run/secrets/key": "1\nsh: can't create /run/secrets/key: Read-only file system",
	} {
		if got := in(t, sb, "default", script); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
	conformance.Eventually(t, "the program is started again", func() bool { return in(t, sb, "crash", "wc -l < /count") > "1" })
	// As under Docker: those of commands, AUDIT_WRITE and SYS_CHROOT.
	if got := in(t, sb, "gone", "grep CapEff /proc/self/status; chroot / echo changed 2>&1"); got != "CapEff:\t00000000200404fa\nchanged" {
		t.Errorf("rights of a program: %q", got)
	}
	if got := in(t, sb, "gone", "ps | grep -c '[s]leep 1000'"); got != "0" {
		t.Errorf("%s processes of a program that has ended", got)
	}
}

// TestPod_Open opens a kept project of several services in which nothing but guests runs.
func TestPod_Open(t *testing.T) {
	t.Parallel()
	openPod(t, newProvider(t, native.Options{}))
}

func openPod(t *testing.T, p *native.Provider) {
	t.Helper()
	kept := keep(t, p, fumehood.Spec{Compose: composeFile(t, twoWaiting)})
	opened, err := p.Open(t.Context(), kept.Info().Name)
	if err == nil {
		err = errors.Join(opened.Stop(t.Context()), opened.Close(t.Context()))
	}
	if err := errors.Join(err, kept.Check(t.Context())); err != nil {
		t.Errorf("after another stop: %v", err)
	}
	network := in(t, kept, "other", "readlink /proc/self/ns/net")
	sb := again(t, p, kept)
	if got := in(t, sb, "other", "hostname; grep -c default /etc/hosts"); got != "other\n1" {
		t.Errorf("other: %q", got)
	}
	if got := in(t, sb, "default", "readlink /proc/self/ns/net"); got != network {
		t.Errorf("networks %s and %s", got, network)
	}
	all, err := p.Kept(t.Context())
	if err != nil || len(all) != 1 || all[0].States["other"] != "running" || all[0].States["default"] != "running" {
		t.Errorf("kept: %+v, %v", all, err)
	}
	if err := sb.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPod_many starts many services, of which some end and some are started again and again.
func TestPod_many(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI)
	n := tier.Pick(t, 20, 20, 60)
	p := newProvider(t, native.Options{})
	text := "services:\n  default: {image: " + busybox + ", command: sleep infinity}\n"
	for i := range n - 1 {
		program := []string{"[sh, -c, 'exec httpd -f -p %d']", "'true'", "[sh, -c, 'exit 1']\n    restart: always"}[i%3]
		if strings.Contains(program, "%d") {
			program = fmt.Sprintf(program, 2000+i)
		}
		text += fmt.Sprintf("  s%d:\n    image: %s\n    command: %s\n", i, busybox, program)
	}
	began := time.Now()
	sb := start(t, p, fumehood.Spec{Compose: composeFile(t, text)})
	t.Logf("%d services started in %v", n, time.Since(began))
	for i := 0; i < n-1; i += 3 {
		if got := in(t, sb, "default", fmt.Sprintf("wget -qO- http://s%d:%d/ 2>&1 | grep -o 404", i, 2000+i)); got != "404" {
			t.Errorf("service %d: %q", i, got)
		}
	}
	began = time.Now()
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %v", time.Since(began))
}

// Services in user namespaces, with and without root, are as they are for root.
func TestPod_userNamespace(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{UserNamespace: true})
	startPod(t, p, "7")
	podSettings(t, p)
	openPod(t, p)
	stopPrograms(t, p)
	t.Run("users", func(t *testing.T) { podUsers(t, p) })
}

// podUsers checks that services share volumes as users, and the network.
func podUsers(t *testing.T, p *native.Provider) {
	t.Helper()
	needNetwork(t)
	sb := start(t, p, fumehood.Spec{Compose: composeFile(t, `
x-fumehood: {egress: internet}
services:
  default: {image: `+busybox+`, command: sleep infinity, user: tester, volumes: ["vol:/home/tester"]}
  other: {image: `+busybox+`, command: sleep infinity, user: tester, volumes: ["vol:/home/tester"]}
volumes: {vol: {}}
`)})
	for _, c := range []struct{ service, script, want string }{
		{"other", "echo hello > ~/f", ""},
		{"default", "cat ~/f; stat -c %U ~ ~/f", "hello\ntester\ntester"},
		{"other", "ip address show dev eth0 | grep -o 'inet [^ ]*'; cat /etc/resolv.conf", "inet 10.201.0.100/24\nnameserver 10.201.0.3"},
	} {
		if got := in(t, sb, c.service, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
}

func TestPod_rootless(t *testing.T) {
	t.Parallel()
	asUser(t, func(t *testing.T) { podWithoutRoot(t, "0") })
}

func TestPod_subordinate(t *testing.T) {
	t.Parallel()
	withIDs(t, func(t *testing.T) { podWithoutRoot(t, "7") })
}

func podWithoutRoot(t *testing.T, user string) {
	p := newProvider(t, native.Options{CacheDir: filepath.Join(t.TempDir(), "cache"), AllowUnenforcedLimits: true})
	startPod(t, p, user)
	podSettings(t, p)
	openPod(t, p)
	stopPrograms(t, p)
	if user != "0" {
		t.Run("users", func(t *testing.T) { podUsers(t, p) })
		return
	}
	sb := start(t, p, fumehood.Spec{Compose: composeFile(t, strings.Replace(twoWaiting, "sleep infinity}\n  other: {", "sleep infinity}\n  other: {mem_limit: 64m, ", 1))})
	other, err := sb.Lookup("other")
	if err != nil {
		t.Fatal(err)
	}
	res, err := other.Exec(t.Context(), fumehood.Cmd{Args: []string{"tail", "-c", "200000000", "/dev/zero"}, Timeout: time.Minute})
	if err != nil || res.Outcome != fumehood.OutOfMemory {
		t.Errorf("%v, %+v", err, res)
	}
}

// A volume below a mount is the image's folder, as in Docker.
func TestPod_volumes_belowMount(t *testing.T) {
	t.Parallel()
	c := composeFile(t, `
services:
  default: {image: `+busybox+`, command: sleep infinity, volumes: ["./data:/etc:ro", "named:/etc/named", "/etc/init.d"]}
volumes: {named: {}}
`)
	data := filepath.Join(filepath.Dir(c.Files[0]), "data")
	for _, name := range []string{"named", "init.d"} {
		if err := os.Mkdir(filepath.Join(data, name), 0o755); err != nil { //nolint:gosec // for the sandbox
			t.Fatal(err)
		}
	}
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Compose: c})
	if got := in(t, sb, "default", "cd /etc && touch named/x init.d/y && ls named init.d; touch z 2>&1 | grep -o Read-only"); got != "init.d:\ny\n\nnamed:\nx\nRead-only" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"named", "init.d"} {
		if found, err := os.ReadDir(filepath.Join(data, name)); err != nil || len(found) > 0 {
			t.Errorf("on the host: %v, %v", found, err)
		}
	}
}

// A service that may only read a volume does not set its owner and mode.
func TestPod_volumes_owner(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Compose: composeFile(t, `
services:
  default: {image: `+busybox+`, command: sleep infinity, volumes: ["shared:/a", "kept:/tmp"]}
  two: {image: `+busybox+`, command: sleep infinity, volumes: ["shared:/tmp:ro", "kept:/var/tmp:ro"]}
volumes: {shared: {}, kept: {}}
`)})
	if got := in(t, sb, "default", "stat -c %a /a /tmp"); got != "755\n1777" {
		t.Errorf("got modes %q", got)
	}
}

// A project's files name no files of the host.
func TestPod_imageFile(t *testing.T) {
	t.Parallel()
	archive := testimages.Archive(t, busybox)
	p := newProvider(t, native.Options{})
	sb, err := p.Start(t.Context(), fumehood.Spec{Compose: composeFile(t, "services:\n  default:\n    image: docker-archive:"+archive+"\n    command: sleep infinity\n")})
	if err == nil {
		t.Fatalf("it started; closed: %v", sb.Close(t.Context()))
	}
	if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "compose.yaml:3") || !strings.Contains(err.Error(), "image load") {
		t.Errorf("got %v", err)
	}
}

// A service without an ID among prepared images is refused, whatever image has its name.
func TestPod_notPrepared(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	_, err := p.Start(t.Context(), fumehood.Spec{Compose: composeFile(t, twoWaiting), Images: map[string]string{}})
	conformance.WantError(t, err, fumehood.ErrConfig)
	if !strings.Contains(err.Error(), "no image was prepared for this service") {
		t.Error(err)
	}
}

// A project that cannot be started, since its image has no program, leaves no image locked.
func TestPod_noProgram(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	none := hostile{files: []layerFile{file("own", "x")}, config: func(c *v1.Config) { c.Cmd, c.Entrypoint = nil, nil }}
	p, ref := none.provider(t, native.Options{CacheDir: cache})
	if _, err := p.LoadImages(t.Context(), strings.TrimPrefix(ref, "docker-archive:")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := p.Start(t.Context(), fumehood.Spec{Compose: composeFile(t, "services: {default: {image: 'hostile:latest'}}\n")})
		if !errors.Is(err, fumehood.ErrConfig) {
			t.Fatalf("got %v, want an ErrConfig", err)
		}
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(open) == 0 {
		t.Fatal(err, len(open))
	}
	for _, fd := range open {
		if file, err := os.Readlink(fd); err == nil && strings.HasPrefix(file, cache) {
			t.Errorf("%s is open", file)
		}
	}
}
