package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// project writes a Compose project of one file.
func project(t *testing.T, yaml string) *fumehood.Compose {
	t.Helper()
	file := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fumehood.Compose{Files: []string{file}}
}

func TestCompose_limitBeyondMachine(t *testing.T) {
	t.Parallel()
	for memory, logged := range map[string]bool{"900000g": true, "64m": false} {
		var log bytes.Buffer
		p := newProvider(t, docker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		start(t, p, fumehood.Spec{Compose: project(t, "services: {default: {image: "+busybox+", command: sleep infinity, mem_limit: "+memory+"}}")})
		if strings.Contains(log.String(), "the sandbox has no limit") != logged {
			t.Errorf("%s: the log says %q", memory, log.String())
		}
	}
}

// TestCompose_emptyCommand has an empty command or entrypoint in place of the image's.
func TestCompose_emptyCommand(t *testing.T) {
	t.Parallel()
	file := project(t, `
x-one: &one
  build: {context: ., dockerfile_inline: "FROM fumehood-test/busybox\nENTRYPOINT [\"sh\", \"-c\", \"echo entry $$# >/out; exec sleep 1000\", \"zero\"]\nCMD [\"sh\", \"-c\", \"echo cmd $$# >/out; exec sleep 1000\"]\n"}
services:
  default: {<<: *one, command: []}
  image: {<<: *one}
  entrypoint: {<<: *one, entrypoint: []}
`)
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: file})
	for service, want := range map[string]string{"default": "entry 0\n", "image": "entry 3\n", "entrypoint": "cmd 0\n"} {
		svc, err := sb.Lookup(service)
		if err != nil {
			t.Fatal(err)
		}
		res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "until [ -s /out ]; do sleep 0.05; done; cat /out"}, Timeout: 10 * time.Second})
		if got := res.Stdout.Text(); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", service, got, err, want)
		}
	}
}

// TestCompose_fileOwners checks the owners of secrets and configs that are copied into a container.
func TestCompose_fileOwners(t *testing.T) {
	t.Parallel()
	file := project(t, `
services:
  default: {image: fumehood-test/python, command: sleep infinity, user: "1000", configs: &configs [{source: c, target: /c, mode: 0400}, {source: c, target: /group, gid: "7"}]}
  named: {image: fumehood-test/python, command: sleep infinity, user: tester:5, configs: *configs}
  own: {image: fumehood-test/python, command: sleep infinity, user: "1000:1001", configs: [{source: c, target: /c, uid: "7", gid: "8"}], secrets: [{source: s, mode: 0440}, {source: s, target: group, gid: "7"}]}
  root: {image: fumehood-test/python, command: sleep infinity, user: root, configs: *configs}
configs: {c: {content: word}}
secrets: {s: {environment: S}}
`)
	file.Env = map[string]string{"S": "word"}
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: file})
	for service, want := range map[string]string{
		"default": "1000:1000:400 1000:7:444",
		"named":   "1000:5:400 1000:7:444",
		"own":     "7:8:444 1000:1001:440 1000:7:444",
		"root":    "0:0:400 0:7:444",
	} {
		args := []string{"stat", "-c", "%u:%g:%a", "/c", "/group"}
		if service == "own" {
			args = append(args[:4], "/run/secrets/s", "/run/secrets/group")
		}
		svc, err := sb.Lookup(service)
		if err != nil {
			t.Fatal(err)
		}
		res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: args})
		if got := strings.Join(strings.Fields(res.Stdout.Text()), " "); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", service, got+res.Stderr.Text(), err, want)
		}
	}
}

// comesToNothing checks that a start fails with an error of the given class and leaves nothing. It returns the error.
func comesToNothing(t *testing.T, p *docker.Provider, spec fumehood.Spec, class error) error {
	t.Helper()
	sb, err := p.Start(t.Context(), spec)
	if err == nil {
		t.Fatal(errors.Join(errors.New("it came up"), sb.Close(t.Context())))
	}
	if !errors.Is(err, class) {
		t.Errorf("the class of %v is %v, want %v", err, fumehood.ClassOf(err), class)
	}
	if left := objectsOf(t, spec.Name); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return err
}

// wantText checks that an error contains a text.
func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not contain %q", err, want)
	}
}

func TestCompose_projectsIsolated(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	yaml := func(volume, network string) *fumehood.Compose {
		return project(t, fmt.Sprintf(`
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, volumes: ["%[1]s:/data"], networks: [%[2]s]}
volumes: {%[1]s: }
networks: {%[2]s: }
`, volume, network))
	}
	name := "shares-" + strings.ToLower(rand.Text()[:8])
	one := start(t, p, fumehood.Spec{Name: name + "_two", Compose: yaml("data", "net")})
	other := start(t, p, fumehood.Spec{Name: name, Compose: yaml("two_data", "two_net")})
	run := func(sb fumehood.Sandbox, script string) string {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Stdout.Text()
	}
	address := strings.TrimSpace(run(one, "echo mine >/data/file; hostname -i"))
	if got := run(other, "cat /data/file 2>/dev/null"); got != "" {
		t.Errorf("it reads %q of the other's volume", got)
	}
	if got := run(other, "ping -c 1 -W 1 "+address+" >/dev/null 2>&1 && echo there"); got != "" || address == "" {
		t.Errorf("it reaches %q, which is in the other's network", address)
	}
}

func TestCompose_objectExists(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	name := "there-" + strings.ToLower(rand.Text()[:8])
	cli := func(args ...string) {
		if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
			t.Errorf("docker %v: %v: %s", args, err, out)
		}
	}
	for kind, yaml := range map[string]string{
		"volume":  "services: {default: {image: fumehood-test/busybox, command: sleep infinity, volumes: [\"vol:/x\"]}}\nvolumes: {vol: }",
		"network": "services: {default: {image: fumehood-test/busybox, command: sleep infinity, networks: [vol]}}\nnetworks: {vol: }",
	} {
		object := name + "-" + kind + ".vol"
		cli(kind, "create", object)
		t.Cleanup(func() { cli(kind, "rm", object) }) // fails if the object no longer exists
		spec := fumehood.Spec{Name: name + "-" + kind, Compose: project(t, yaml)}
		wantText(t, comesToNothing(t, p, spec, fumehood.ErrConfig), "there is a "+kind+" "+object)
	}
}

// eachOf calls f for 0 to n-1, with at most atOnce calls at once.
func eachOf(n, atOnce int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

func TestCompose_manyInParallel(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	// The Engine probes until the end. Probes of 60 projects, twice a second each, would take more than two cores.
	interval := tier.Pick(t, "500ms", "500ms", "5s")
	compose := project(t, `
services:
  web:
    image: fumehood-test/python
    container_name: web
    command: [python3, -c, "import http.server as h; h.HTTPServer(('', 8008), h.SimpleHTTPRequestHandler).serve_forever()"]
    ports: ["8008:8008"]
    healthcheck: {test: [CMD, python3, -c, "import socket; socket.create_connection(('127.0.0.1', 8008))"], interval: `+interval+`, retries: 100}
  default: {image: fumehood-test/python, command: sleep infinity, depends_on: {web: {condition: service_healthy}}}
`)
	var mu sync.Mutex
	ports := map[int]bool{}
	eachOf(tier.Pick(t, 2, 2, 60), 16, func(i int) {
		sb, err := p.Start(t.Context(), fumehood.Spec{Compose: compose})
		if err != nil {
			t.Errorf("project %d: %v", i, err)
			return
		}
		t.Cleanup(func() {
			if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "import urllib.request; print(urllib.request.urlopen('http://web:8008').status)"}})
		if err != nil || res.Stdout.Text() != "200\n" {
			t.Errorf("project %d: %v, %+v", i, err, res)
		}
		web, err := sb.Lookup("web")
		if err != nil {
			t.Error(err)
			return
		}
		conn, err := web.Connection(t.Context())
		if err != nil || len(conn.Ports) != 1 {
			t.Errorf("project %d: %v, %+v", i, err, conn)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ports[conn.Ports[0].Host] {
			t.Errorf("two projects have port %d", conn.Ports[0].Host)
		}
		ports[conn.Ports[0].Host] = true
	})
}

func TestCompose_manyInTurn(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	compose := project(t, `
services:
  web:
    image: fumehood-test/busybox
    command: [sh, -c, "mkdir /tmp/www && echo hello > /tmp/www/index.html && exec busybox httpd -f -p 8080 -h /tmp/www"]
    healthcheck: {test: wget -q -O - http://127.0.0.1:8080/, interval: 500ms, retries: 100}
  default: {image: fumehood-test/busybox, command: sleep infinity, depends_on: {web: {condition: service_healthy}}}
`)
	begun := time.Now()
	n := tier.Pick(t, 2, 2, 60)
	eachOf(n, 16, func(i int) {
		sb, err := p.Start(t.Context(), fumehood.Spec{Compose: compose})
		if err != nil {
			t.Errorf("project %d: %v", i, err)
			return
		}
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"wget", "-q", "-O", "-", "http://web:8080/"}})
		if err != nil || res.Stdout.Text() != "hello\n" {
			t.Errorf("project %d: %v, %+v", i, err, res)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Errorf("project %d: %v", i, err)
		}
		if left := objectsOf(t, sb.Info().Name); len(left) != 0 {
			t.Errorf("project %d has left %v", i, left)
		}
	})
	t.Logf("%d projects in %v", n, time.Since(begun))
}

func TestCompose_engineTransport(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{Transport: docker.TransportEngine})
	sb := start(t, p, fumehood.Spec{Compose: project(t, `
services:
  default: {image: fumehood-test/busybox, command: sleep infinity}
  other: {image: fumehood-test/busybox, command: sleep infinity}
`)})
	if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"nslookup", "other"}}); err != nil || res.ExitCode != 0 {
		t.Errorf("%v, %+v", err, res)
	}
}

func TestCompose_forwardRejected(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{Transport: docker.TransportEngine})
	spec := fumehood.Spec{
		Name:    "unforwarded-" + strings.ToLower(rand.Text()[:8]),
		Compose: project(t, "services: {default: {image: fumehood-test/busybox, command: sleep infinity, ports: [80]}}"),
	}
	if _, err := p.Start(t.Context(), spec); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "service default") {
		t.Errorf("got %v", err)
	}
	if left := objectsOf(t, spec.Name); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

const twoArchitectures = `services:
  default: {image: fumehood-test/busybox}
  foreign: {platform: linux/%s, build: {dockerfile_inline: "FROM scratch\nCOPY compose.yaml /"}}
`

func TestCompose_twoArchitectures(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	_, err := p.Start(t.Context(), fumehood.Spec{Compose: project(t, fmt.Sprintf(twoArchitectures, other))})
	if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "foreign") || !strings.Contains(err.Error(), other) {
		t.Errorf("got %v", err)
	}
}
