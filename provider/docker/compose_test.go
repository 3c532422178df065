package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

const twoServices = `
services:
  web:
    image: fumehood-test/python
    command: [python3, -m, http.server, "8000"]
    ports: ["8000:8000"]
    healthcheck:
      test: [CMD, python3, -c, "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000')"]
      interval: 500ms
      retries: 100
  default:
    image: fumehood-test/python
    command: sleep infinity
    depends_on: {web: {condition: service_healthy}}
`

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

func TestCompose_order(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, twoServices)})
	info := sb.Info()
	if len(info.Services) != 2 || info.Services[0].Name != "default" || info.Services[1].Name != "web" {
		t.Fatalf("got %+v", info.Services)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", "import urllib.request; print(urllib.request.urlopen('http://web:8000').status)"}})
	if err != nil || res.Stdout.Text() != "200\n" {
		t.Errorf("%v, %+v", err, res)
	}
	web, err := sb.Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := web.Exec(t.Context(), fumehood.Cmd{Args: []string{"hostname"}}); err != nil || res.ExitCode != 0 {
		t.Errorf("%v, %+v", err, res)
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

func TestCompose_internalPorts(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}), fumehood.Spec{Compose: project(t, twoServices)})
	web, err := sb.Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := web.Connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(conn.Ports) != 1 || conn.Ports[0].Container != 8000 || conn.Ports[0].Address != "127.0.0.1" || conn.Ports[0].Protocol != "tcp" {
		t.Fatalf("got %+v", conn.Ports)
	}
	if want := []string{"docker", "exec", "-it", web.ServiceInfo().Container, "bash", "-l"}; !slices.Equal(conn.Shell, want) {
		t.Errorf("got the shell %q, want %q", conn.Shell, want)
	}
	for range 20 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", conn.Ports[0].Host), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), "Directory listing") {
			t.Fatalf("%v, %v, %q", err, res.Status, body)
		}
	}
}

func TestCompose_startFails(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	for name, c := range map[string]struct {
		yaml  string
		ready time.Duration
		class error
		want  []string
	}{
		"a service that fails": {`
services:
  default: {image: fumehood-test/python, command: sleep infinity, healthcheck: {test: "true", interval: 2s}}
  db: {image: fumehood-test/python, command: [sh, -c, "echo one; echo two >&2; exit 3"]}
`, 0, fumehood.ErrUnavailable, []string{"in service db", "exited with code 3", "one", "two"}},
		"an unhealthy service": {`
services:
  default: {image: fumehood-test/python, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db:
    image: fumehood-test/python
    command: [sh, -c, "echo up; exec sleep 1000"]
    healthcheck: {test: "echo sick; false", interval: 200ms, retries: 2}
`, 0, fumehood.ErrUnavailable, []string{"wait until healthy in service db", "unhealthy", "sick", "up"}},
		"a service that takes too long": {`
services:
  default: {image: fumehood-test/python, command: sleep infinity}
  db:
    image: fumehood-test/python
    command: [sh, -c, "exec sleep 1000"]
    healthcheck: {test: "false", interval: 1h}
`, 6 * time.Second, fumehood.ErrLimit, []string{"wait until healthy in service db", "LIMIT, which is the limit"}},
		"a slow one-shot service": {`
services:
  default: {image: fumehood-test/python, command: sleep infinity, depends_on: {setup: {condition: service_completed_successfully}}}
  setup: {image: fumehood-test/python, command: [sh, -c, "exec sleep 1000"]}
`, 6 * time.Second, fumehood.ErrLimit, []string{"wait until completed in service setup", "LIMIT, which is the limit"}},
		"a slow post_start command": {`
services:
  default: {image: fumehood-test/python, command: sleep infinity, post_start: [{command: sleep 1000}]}
`, 4 * time.Second, fumehood.ErrLimit, []string{"start in service default: it has not started after LIMIT, which is the limit"}},
		"a one-shot service that fails": {`
services:
  default: {image: fumehood-test/python, command: sleep infinity, depends_on: {setup: {condition: service_completed_successfully}}}
  setup: {image: fumehood-test/python, command: [sh, -c, "echo broken; exit 4"]}
`, 0, fumehood.ErrUnavailable, []string{"service setup", "exited with code 4", "broken"}},
		"an ended default service": {`
services:
  default: {image: fumehood-test/python, command: "true"}
  other: {image: fumehood-test/python, command: sleep infinity, depends_on: {default: {condition: service_completed_successfully}}}
`, 0, fumehood.ErrUnavailable, []string{"in service default", "exited with code 0", "default service"}},
		"a program that is not there": {`
services:
  default: {image: fumehood-test/python, command: /nothing/there}
`, 0, fumehood.ErrUnavailable, []string{"in service default", "code 127", "/nothing/there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for ready := c.ready; ; ready *= 2 {
				spec := fumehood.Spec{Name: "fails-" + strings.ToLower(rand.Text()[:8]), Compose: project(t, c.yaml)}
				spec.Compose.ReadyTimeout = ready
				err := comesToNothing(t, p, spec, c.class)
				if slow := "it has not started"; err != nil && strings.Contains(err.Error(), slow) && !strings.Contains(strings.Join(c.want, " "), slow) && ready < time.Minute {
					continue // on a busy machine the failure may come after the start
				}
				for _, want := range c.want {
					wantText(t, err, strings.ReplaceAll(want, "LIMIT", ready.String()))
				}
				break
			}
		})
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

func TestCompose_optionalFails(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, `
services:
  default:
    image: fumehood-test/python
    command: sleep infinity
    depends_on:
      extra: {condition: service_healthy, required: false}
      setup: {condition: service_completed_successfully}
    volumes: ["data:/data"]
  extra: {image: fumehood-test/python, command: "false", healthcheck: {test: "true"}}
  setup: {image: fumehood-test/python, command: [sh, -c, "echo done > /data/made"], volumes: ["data:/data"]}
volumes: {data: {}}
`)})
	if got, err := sb.ReadFile(t.Context(), "/data/made", fumehood.ReadOptions{}); err != nil || string(got) != "done\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCompose_startCanceled(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	const yaml = `
services:
  default: {image: fumehood-test/python, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db: {image: fumehood-test/python, command: [sh, -c, "exec sleep 1000"], healthcheck: {test: "false", interval: 1h}, volumes: ["data:/data"]}
volumes: {data: {}}
`
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			if !canceledAfter(t, p, after, yaml) {
				t.Error("it came up")
			}
		})
	}
}

func TestCompose_nameTaken(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	spec := fumehood.Spec{Name: "taken-" + strings.ToLower(rand.Text()[:8]), Compose: project(t, "services: {default: {image: fumehood-test/busybox, command: sleep infinity}}")}
	first := start(t, p, spec)
	other := newProvider(t, docker.Options{})
	if _, err := other.Start(t.Context(), spec); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "already") {
		t.Errorf("got %v", err)
	}
	if res, err := first.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || res.ExitCode != 0 {
		t.Errorf("the first sandbox does not work any more: %v, %+v", err, res)
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
