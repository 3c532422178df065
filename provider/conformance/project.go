package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var projectPromises = []providerPromise{
	{"project/services depend on each other", func(t *testing.T, c *ProviderCase) {
		text, host := Shopping("IMAGE", "7"), "shop"
		if c.Harness.OneHostName {
			text, host = strings.Replace(text, "hostname: shop", "networks: {default: {aliases: [shop]}}", 1), "default"
		}
		Shop(t, c.start(t, c.project(text)), "7", host)
	}},
	{"project/optional service may fail", func(t *testing.T, c *ProviderCase) {
		sb := c.start(t, c.project(`
services:
  default:
    image: IMAGE
    command: sleep infinity
    depends_on:
      extra: {condition: service_healthy, required: false}
      setup: {condition: service_completed_successfully}
    volumes: ["data:/data"]
  extra: {image: IMAGE, command: "false", healthcheck: {test: "true"}}
  setup: {image: IMAGE, command: [sh, -c, "echo done > /data/made"], volumes: ["data:/data"]}
volumes: {data: {}}
`))
		if got := sh(t, sb, "cat /data/made"); got != "done" {
			t.Errorf("got %q", got)
		}
	}},
	{"project/service that fails fails the start", func(t *testing.T, c *ProviderCase) {
		for name, f := range failingServices {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f.check(t, c)
			})
		}
	}},
	{"project/slow service fails the start", func(t *testing.T, c *ProviderCase) {
		for name, f := range slowServices {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f.check(t, c)
			})
		}
	}},
	{"project/canceled start leaves nothing", func(t *testing.T, c *ProviderCase) {
		why := errors.New("enough")
		for _, after := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second} {
			t.Run(after.String(), func(t *testing.T) {
				t.Parallel()
				spec := c.project(`
services:
  default: {image: IMAGE, command: sleep infinity, depends_on: {setup: {condition: service_completed_successfully}}}
  setup: {image: IMAGE, command: [sh, -c, "exec sleep 1000"], volumes: ["data:/data"]}
volumes: {data: {}}
`)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer time.AfterFunc(after, func() { cancel(why) }).Stop()
				began := time.Now()
				_, err := c.Start(ctx, spec)
				WantError(t, err, fumehood.ErrCanceled, why)
				if took := time.Since(began); took > after+20*time.Second { // 2 s on an idle machine
					t.Errorf("it returned after %v", took)
				}
				c.wantGone(t, spec.Name)
			})
		}
	}},
	{"project/name in use is ErrConfig", func(t *testing.T, c *ProviderCase) {
		spec := c.project("services: {default: {image: IMAGE, command: sleep infinity}}")
		sb := c.start(t, spec)
		for _, p := range []fumehood.Provider{c, c.Another(t)} {
			_, err := p.Start(t.Context(), spec)
			WantError(t, err, fumehood.ErrConfig)
		}
		sh(t, sb, "true")
	}},
	{"project/kept services have commands of their own", func(t *testing.T, c *ProviderCase) {
		name := c.keepClosed(t, c.project(talkers))
		first := c.open(t, name)
		var names []string
		for _, s := range first.Info().Services {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != "worker once quiet talker" {
			t.Errorf("the services are %s", got)
		}
		for service, user := range map[string]string{"worker": "0", "talker": "1234"} {
			var all sync.WaitGroup
			for range 4 { // several processes may start the guest of a service
				s := lookup(t, c.open(t, name), service)
				all.Go(func() {
					p, err := s.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "id -u; exec sleep 1000"}, Detach: true})
					if err != nil {
						t.Error(err)
					} else if n := p.Info().ID; n < 1 || n > 4 {
						t.Errorf("%s: number %d", service, n)
					}
				})
			}
			all.Wait()
			s := lookup(t, c.open(t, name), service)
			if n := numbers(t, s); len(n) != 4 {
				t.Errorf("%s: commands %v", service, n)
			}
			p := rejoin(t, s, 1)
			awaitText(t, p, user+"\n")
			if res := kill(t, p); res.Outcome != fumehood.Signaled {
				t.Errorf("%s: %+v", service, res)
			}
		}
	}},
	{"project/logs of kept services can be read", func(t *testing.T, c *ProviderCase) {
		name := c.keepClosed(t, c.project(talkers))
		o := c.Another(t).(provider.Opener)
		for _, want := range []struct {
			service, stdout, stderr string
			tail                    int
		}{
			{"talker", "one\ntwo\n", "bad\n", 0}, {"once", "first\ndone\n", "", 0}, {"once", "done\n", "", 1}, {"quiet", "two\n", "", 1},
		} {
			Eventually(t, "the log is there", func() bool {
				got := c.logs(t, name, want.service, provider.LogOptions{Tail: want.tail})
				return got[fumehood.Stdout] == want.stdout && got[fumehood.Stderr] == want.stderr
			})
		}
		last := c.logs(t, name, "talker", provider.LogOptions{Tail: 1}) // of each stream, or of both together
		stdout, stderr := last[fumehood.Stdout], last[fumehood.Stderr]
		if stdout != "" && stdout != "two\n" || stderr != "" && stderr != "bad\n" || stdout+stderr == "" {
			t.Errorf("the last line: %q, %q", stdout, stderr)
		}
		for service, class := range map[string]error{"": fumehood.ErrUnsupported, "nobody": fumehood.ErrConfig} {
			WantError(t, o.Logs(t.Context(), name, service, provider.LogOptions{}, nil), class)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := o.Logs(ctx, name, "talker", provider.LogOptions{Follow: true}, func(fumehood.Stream, []byte) { cancel() })
		WantError(t, err, fumehood.ErrCanceled)
		for service, want := range map[string]struct {
			tail int
			text string
		}{"talker": {0, "one\ntwo\nthree\n"}, "quiet": {1, "two\nthree\n"}} {
			if got, err := c.follow(t, name, service, want.tail); err != nil || got != want.text {
				t.Errorf("%s, followed: %q, %v", service, got, err)
			}
		}
	}},
}

// talkers is a project with a service that only idles, which is not the first by name, two that run their own program until
// a file exists, and one that ends.
const talkers = `
services:
  talker:
    image: IMAGE
    user: "1234"
    command: [sh, -c, "echo one; echo bad >&2; echo two; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo three; exit 4"]
  quiet: {image: IMAGE, command: [sh, -c, "echo one; echo two; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo three"]}
  worker: {image: IMAGE, command: sleep infinity, x-default: true}
  once: {image: IMAGE, command: [sh, -c, "echo first; echo done"]}
`

// logs returns what Logs sends, by stream.
func (c *ProviderCase) logs(t *testing.T, name, service string, opts provider.LogOptions) map[fumehood.Stream]string {
	t.Helper()
	var mu sync.Mutex
	text := map[fumehood.Stream]string{}
	err := c.Provider.(provider.Opener).Logs(t.Context(), name, service, opts, func(s fumehood.Stream, p []byte) {
		mu.Lock()
		defer mu.Unlock()
		text[s] += string(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// follow follows the log of a service that writes once more, and ends, when /tmp/go exists. It returns what the service writes
// to its standard output, from the last lines of that or all.
func (c *ProviderCase) follow(t *testing.T, name, service string, tail int) (text string, err error) {
	t.Helper()
	s := lookup(t, c.open(t, name), service)
	ctx, cancel := context.WithTimeout(t.Context(), commandBound)
	defer cancel()
	var mu sync.Mutex
	released := false
	err = c.Another(t).(provider.Opener).Logs(ctx, name, service, provider.LogOptions{Follow: true, Tail: tail}, func(stream fumehood.Stream, p []byte) {
		mu.Lock()
		defer mu.Unlock()
		if stream == fumehood.Stdout {
			text += string(p)
		}
		if released {
			return
		}
		released = true
		// The service may end before this command does, and even before its start is reported.
		if _, err := s.Start(ctx, fumehood.Cmd{Args: []string{"touch", "/tmp/go"}, Detach: true}); err != nil {
			t.Log(err)
		}
	})
	return text, err
}

// project returns the spec of a Compose file, in which IMAGE stands for the image of the harness's Spec.
func (c *ProviderCase) project(text string) fumehood.Spec {
	spec := c.spec()
	spec.Compose = &fumehood.Compose{Content: strings.ReplaceAll(text, "IMAGE", spec.Image)}
	spec.Image = ""
	return spec
}

func lookup(t *testing.T, sb fumehood.Sandbox, service string) fumehood.Service {
	t.Helper()
	s, err := sb.Lookup(service)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failingStart is a project that fails to start: the default service and others.
type failingStart struct {
	services string
	class    error
	ready    time.Duration // the limit that is exceeded, which grows on a slow machine
	want     []string      // texts in the error
}

const (
	idle = "services:\n  default: {image: IMAGE, command: sleep infinity}\n"
	// awaited never becomes healthy, so that a start takes until its limit unless it fails earlier.
	awaited = "services:\n  default: {image: IMAGE, command: sleep infinity, healthcheck: {test: \"true\", interval: 1h}}\n"
	setUp   = "services:\n  default: {image: IMAGE, command: sleep infinity, depends_on: {setup: {condition: service_completed_successfully}}}\n"
)

var failingServices = map[string]failingStart{
	"ends": {
		awaited + `  db: {image: IMAGE, command: [sh, -c, "echo one; echo two >&2; exit 3"]}`, fumehood.ErrUnavailable, 0,
		[]string{"in service db", "it has exited with code 3", "one", "two"},
	},
	"ends later": {
		awaited + `  db: {image: IMAGE, command: [sh, -c, "echo last words; sleep 1; exit 3"]}`, fumehood.ErrUnavailable, 0,
		[]string{"in service db", "it has exited with code 3", "last words"},
	},
	"ends again": {
		awaited + `  db: {image: IMAGE, command: [sh, -c, "echo last words; sleep 0.5; exit 3"], restart: "on-failure:1"}`, fumehood.ErrUnavailable, 0,
		[]string{"in service db", "it has exited with code 3", "last words"},
	},
	"ends after it was healthy": {
		awaited + `  db: {image: IMAGE, command: [sh, -c, "echo last words; sleep 2; exit 3"], healthcheck: {test: "true", interval: 200ms}}`, fumehood.ErrUnavailable, 0,
		[]string{"in service db", "it has exited with code 3", "last words"},
	},
	"unhealthy": {
		idle + `  db: {image: IMAGE, command: [sh, -c, "echo up; exec sleep 1000"], healthcheck: {test: "echo sick; false", interval: 200ms, retries: 2}}`, fumehood.ErrUnavailable, 0,
		[]string{"wait until healthy in service db", "unhealthy", "sick", "up"},
	},
	"healthy no more": {awaited + `  db:
    image: IMAGE
    command: [sh, -c, "echo last words; sleep 2; touch /tmp/sick; sleep 1000"]
    healthcheck: {test: "! test -e /tmp/sick || { echo sick; false; }", interval: 200ms, retries: 2}
`, fumehood.ErrUnavailable, 0, []string{"wait until healthy in service db", "it is unhealthy", "sick", "last words"}},
	"one-shot fails": {
		setUp + `  setup: {image: IMAGE, command: [sh, -c, "echo broken; exit 4"]}`, fumehood.ErrUnavailable, 0,
		[]string{"service setup", "exited with code 4", "broken"},
	},
	"default service ends": {`
services:
  default: {image: IMAGE, command: "true"}
  other: {image: IMAGE, command: sleep infinity, depends_on: {default: {condition: service_completed_successfully}}}
`, fumehood.ErrUnavailable, 0, []string{"in service default", "exited with code 0", "commands run in it"}},
	"default service ends later": {
		strings.Replace(awaited, "default:", "other:", 1) + `  commands: {image: IMAGE, command: [sh, -c, "echo last words; sleep 1"], x-default: true}`, fumehood.ErrUnavailable, 0,
		[]string{"in service commands", "it has exited with code 0", "commands run in it", "last words"},
	},
}

var slowServices = map[string]failingStart{
	"never healthy": {
		idle + `  db: {image: IMAGE, command: [sh, -c, "exec sleep 1000"], healthcheck: {test: "false", interval: 1h}}`, fumehood.ErrLimit, 6 * time.Second,
		[]string{"wait until healthy in service db", "LIMIT, which is the limit"},
	},
	"one-shot does not end": {
		setUp + `  setup: {image: IMAGE, command: [sh, -c, "exec sleep 1000"]}`, fumehood.ErrLimit, 6 * time.Second,
		[]string{"wait until completed in service setup", "LIMIT, which is the limit"},
	},
}

// check checks that the start fails as described, and leaves nothing.
func (f failingStart) check(t *testing.T, c *ProviderCase) {
	t.Helper()
	for ready := f.ready; ; ready *= 2 {
		spec := c.project(f.services)
		spec.Compose.ReadyTimeout = ready
		_, err := c.Start(t.Context(), spec)
		WantError(t, err, f.class)
		c.wantGone(t, spec.Name)
		var u *provider.Unhealthy // an evaluation blames the task for it
		if is := errors.As(err, &u); is != strings.Contains(err.Error(), "it is unhealthy") || is && u.Service != "db" {
			t.Errorf("an unhealthy service: %t, of %v", is, err)
		}
		if strings.Contains(err.Error(), "it has not started") && 0 < ready && ready < time.Minute {
			continue // the machine is busy
		}
		for _, want := range f.want {
			if want = strings.ReplaceAll(want, "LIMIT", ready.String()); !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
		return
	}
}

// Shopping returns a project whose services depend on each other: migrate runs once db is healthy, web starts after it,
// and the default service waits for web. The database is of a user.
func Shopping(image, user string) string {
	return strings.NewReplacer("IMAGE", image, "USER", user).Replace(`
services:
  default:
    image: IMAGE
    command: sleep infinity
    depends_on: {web: {condition: service_healthy}}
  web:
    image: IMAGE
    hostname: shop
    command: [sh, -c, "echo web >> /data/order; mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
    ports: ["8080"]
    volumes: ["data:/data"]
    depends_on: {migrate: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, wget, -qO-, "http://127.0.0.1:8080/"], interval: 20ms, retries: 500}
  migrate:
    image: IMAGE
    command: [sh, -c, "echo migrate $$(until nc database 5432; do sleep 0.1; done) >> /data/order"]
    volumes: ["data:/data"]
    depends_on: {db: {condition: service_healthy}}
  db:
    image: IMAGE
    user: "USER"
    command: [sh, -c, "sleep 0.2; touch /tmp/up; exec nc -ll -p 5432 -e echo hello"]
    expose: ["5432"]
    networks: {default: {aliases: [database]}}
    healthcheck: {test: "test -e /tmp/up", interval: 20ms, retries: 500}
volumes: {data: {}}
`)
}

// Shop checks what the services of Shopping share. host is the host name of the service web.
func Shop(t *testing.T, sb fumehood.Sandbox, user, host string) {
	t.Helper()
	var names []string
	for _, s := range sb.Info().Services {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "default db migrate web" {
		t.Fatalf("services %s", got)
	}
	for name, c := range map[string]struct{ service, script, want string }{
		"order":             {"web", "cat /data/order", "migrate hello\nweb"},
		"page":              {"default", "wget -qO- http://web:8080/", host},
		"page by host name": {"db", "wget -qO- http://shop:8080/", host},
		"user":              {"db", "id -u", user},
		"own processes":     {"default", "ps | grep -c '[h]ttpd' || true", "0"},
		"own files":         {"default", "ls -d /www /data 2>/dev/null || true", ""},
		"own shared memory": {"default", "touch /dev/shm/x; ls /dev/shm", "x"},
		"other's memory":    {"web", "ls /dev/shm", ""},
		"own host name":     {"web", "hostname", host},
	} {
		if got := sh(t, lookup(t, sb, c.service), c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	conn, err := lookup(t, sb, "web").Connection(t.Context())
	if err != nil || len(conn.Ports) != 1 || conn.Ports[0].Container != 8080 || conn.Ports[0].Address != "127.0.0.1" || conn.Ports[0].Protocol != fumehood.ProtocolTCP {
		t.Fatalf("connection %+v, error %v", conn, err)
	}
	for range 20 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", conn.Ports[0].Host))
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
		page, rerr := io.ReadAll(c)
		if err := errors.Join(err, rerr, c.Close()); err != nil || !strings.HasSuffix(string(page), "\r\n\r\n"+host+"\n") {
			t.Errorf("forwarded: %q, %v", page, err)
		}
	}
}
