package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// engineOf is an Engine that answers with f. n counts the requests of the same method and path, from 1.
type engineOf struct {
	f func(r *http.Request, n int) (*http.Response, error)

	mu   sync.Mutex
	seen map[string]int // by method and path
}

func (e *engineOf) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/_ping") {
		return answer(200, "OK"), nil
	}
	e.mu.Lock()
	if e.seen == nil {
		e.seen = map[string]int{}
	}
	key := r.Method + " " + r.URL.Path
	e.seen[key]++
	n := e.seen[key]
	e.mu.Unlock()
	return e.f(r, n)
}

func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}, "Api-Version": {"1.44"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// hang does not answer until the request is canceled.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// testSecret is the key of the seals in tests.
var testSecret = Secret("a secret")

func guard(t *testing.T, log io.Writer, f func(r *http.Request, n int) (*http.Response, error)) (*Client, *engineOf) {
	t.Helper()
	e := &engineOf{f: f}
	api, err := client.New(client.WithHTTPClient(&http.Client{Transport: e}), client.WithAPIVersion("1.44"))
	if err != nil {
		t.Fatal(err)
	}
	return New(Guard(api, GuardOptions{Logger: slog.New(slog.NewTextHandler(log, nil)), Secret: testSecret}), "test", 0, testSecret), e
}

func (e *engineOf) count(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[key]
}

func TestGuard_retries(t *testing.T) {
	const inspect, start, remove = "GET /v1.44/containers/a/json", "POST /v1.44/containers/a/start", "DELETE /v1.44/containers/a"
	there := answer(200, `{"Id":"a","State":{"Status":"created"}}`)
	reset := func() (*http.Response, error) { return nil, syscall.ECONNRESET }
	internal := func(text string) (*http.Response, error) { return answer(500, `{"message":"`+text+`"}`), nil }
	for name, c := range map[string]struct {
		call  func(c *Client, ctx context.Context) error
		fail  func(n int, r *http.Request) (*http.Response, error)
		fails int // how many calls fail
		key   string
		calls int
		class error
		says  string
		took  time.Duration // at least
	}{
		"a reset": {
			call: inspectA, fail: func(int, *http.Request) (*http.Response, error) { return reset() }, fails: 2, key: inspect, calls: 3,
		},
		"a truncated answer": {
			call: inspectA, fails: 1, key: inspect, calls: 2,
			fail: func(int, *http.Request) (*http.Response, error) { return answer(200, `{"Id":"a","Sta`), nil },
		},
		"a silence": {
			call: inspectA, fail: func(_ int, r *http.Request) (*http.Response, error) { return hang(r) }, fails: 1, key: inspect, calls: 2, took: answering,
		},
		"a silence without an end": {
			call: inspectA, fail: func(_ int, r *http.Request) (*http.Response, error) { return hang(r) }, fails: 9, key: inspect, calls: 3,
			class: fumehood.ErrInfrastructure, says: "has not answered within 30s (tried 3 times)", took: 3 * answering,
		},
		"a silence of a change": {
			call: removeA, fail: func(_ int, r *http.Request) (*http.Response, error) { return hang(r) }, fails: 9, key: remove, calls: 3,
			class: fumehood.ErrInfrastructure, says: "within 30s (tried 3 times)", took: working + secondSilence + thirdSilence,
		},
		"a silence over a file": {
			call: statA, fail: func(_ int, r *http.Request) (*http.Response, error) { return hang(r) }, fails: 9, key: "HEAD /v1.44/containers/a/archive", calls: 1,
			class: fumehood.ErrUnavailable, says: "has not answered within 30s", took: answering,
		},
		"an internal error": {
			call: inspectA, fail: func(int, *http.Request) (*http.Response, error) { return internal("sorry") }, fails: 9, key: inspect, calls: 3,
			class: fumehood.ErrInfrastructure, says: "sorry (tried 3 times)",
		},
		"a full disk": {
			call: removeA, fail: func(int, *http.Request) (*http.Response, error) { return internal("write x: no space left on device") }, fails: 9,
			key: remove, calls: 1, class: fumehood.ErrInfrastructure, says: "a disk is full",
		},
		"a removal that has succeeded": {
			call: removeA, fails: 2, key: remove, calls: 2,
			fail: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return reset()
				}
				return answer(404, `{"message":"No such container: a"}`), nil
			},
		},
		"a start is not": {
			call: startA, fail: func(int, *http.Request) (*http.Response, error) { return reset() }, fails: 9, key: start, calls: 1,
			class: fumehood.ErrInfrastructure, says: "connection reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				e, seen := guard(t, &log, func(r *http.Request, n int) (*http.Response, error) {
					if r.Method+" "+r.URL.Path == c.key && n <= c.fails {
						return c.fail(n, r)
					}
					switch r.Method {
					case http.MethodGet:
						a := *there
						state := `"Status":"created"`
						if strings.HasPrefix(c.key, http.MethodHead) {
							state = `"Status":"running","Running":true`
						}
						a.Body = io.NopCloser(strings.NewReader(`{"Id":"a","State":{` + state + `}}`))
						return &a, nil
					default:
						return answer(204, ""), nil
					}
				})
				began := time.Now()
				err := c.call(e, t.Context())
				if !errors.Is(err, c.class) || c.class == nil && err != nil || c.says != "" && !strings.Contains(fmt.Sprint(err), c.says) {
					t.Errorf("got %v, want %v with %q", err, c.class, c.says)
				}
				if got := seen.count(c.key); got != c.calls {
					t.Errorf("%d calls, want %d", got, c.calls)
				}
				if got := strings.Count(log.String(), "retrying"); got != c.calls-1 {
					t.Errorf("%d retries logged, want %d: %s", got, c.calls-1, log.String())
				}
				if took := time.Since(began); took < c.took {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

func inspectA(c *Client, ctx context.Context) error {
	_, err := c.Inspect(ctx, "a")
	return err
}

func statA(c *Client, ctx context.Context) error {
	_, err := c.Stat(ctx, "a", "/etc/passwd")
	return err
}

func removeA(c *Client, ctx context.Context) error {
	return c.Remove(ctx, Object{Kind: Container, ID: "a", Name: "a"})
}

func startA(c *Client, ctx context.Context) error { return c.StartContainer(ctx, "a") }

func TestCall_patience(t *testing.T) {
	for _, c := range []struct {
		call    call
		n       int
		left    time.Duration
		speedup Speedup
		patient time.Duration
	}{
		{callContainerRemove, 1, 0, 0, time.Minute},
		{callContainerRemove, 2, 0, 1, time.Minute},
		{callContainerRemove, 3, 0, 0, 30 * time.Second},
		{callContainerRemove, 1, 30 * time.Second, 0, 15 * time.Second},
		{callContainerRemove, 3, 7 * time.Second, 0, 30 * time.Second},
		{callContainerInspect, 2, 0, 0, 30 * time.Second},
		{callExecAttach, 1, 30 * time.Second, 0, time.Minute},
		{callContainerRemove, 1, 0, 10, 6 * time.Second},
		{callContainerRemove, 1, 10 * time.Second, 10, 5 * time.Second},
	} {
		if got := c.call.patience(c.n, c.left, c.speedup); got != c.patient {
			t.Errorf("attempt %d to %s with %v left: %v, want %v", c.n, c.call.name, c.left, got, c.patient)
		}
	}
}

func TestGuard_canceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) { return hang(r) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := e.Inspect(ctx, "a")
		if n := seen.count("GET /v1.44/containers/a/json"); !errors.Is(err, fumehood.ErrCanceled) && !errors.Is(err, fumehood.ErrInfrastructure) || n != 2 {
			t.Errorf("%d calls, %v", n, err)
		}
		cancel()
		if _, err := e.Inspect(ctx, "a"); !errors.Is(err, fumehood.ErrCanceled) {
			t.Errorf("got %v, want an ErrCanceled", err)
		}
	})
}

// An object that was created over a connection that broke is found by its name, and adopted if it is ours.
func TestContainerCreate_adopted(t *testing.T) {
	const create = "POST /v1.44/containers/create"
	own := map[string]string{owner.LabelOwner: "me", owner.LabelSandbox: "x"}
	sealed := testSecret.seal(Container, "x", own)
	inherited := maps.Clone(sealed)
	inherited[owner.LabelCache] = "test"
	for name, c := range map[string]struct {
		labels map[string]string // of the existing container
		status string
		fail   func(r *http.Request) (*http.Response, error)
		id     string
		calls  int
	}{
		"ours, after a reset":        {sealed, "created", func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET }, "there", 1},
		"ours, after a silence":      {sealed, "created", hang, "there", 1},
		"with an image's labels too": {inherited, "created", hang, "there", 1},
		"another's":                  {testSecret.seal(Container, "x", map[string]string{owner.LabelOwner: "you", owner.LabelSandbox: "x"}), "created", hang, "", 2},
		"with another secret":        {Secret("another").seal(Container, "x", own), "created", hang, "", 2},
		"one that was started":       {sealed, "running", hang, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, seen := guard(t, io.Discard, func(r *http.Request, n int) (*http.Response, error) {
					switch {
					case r.Method == http.MethodGet:
						labels := ""
						for k, v := range c.labels {
							labels += fmt.Sprintf(",%q:%q", k, v)
						}
						return answer(200, `{"Id":"there","State":{"Status":"`+c.status+`"},"Config":{"Labels":{`+strings.TrimPrefix(labels, ",")+`}}}`), nil
					case n == 1:
						return c.fail(r)
					}
					return answer(409, `{"message":"Conflict. The container name is already in use"}`), nil
				})
				res, err := e.api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: "x", Image: "i", Config: nil})
				if err == nil {
					t.Fatalf("without labels: %+v", res)
				}
				seen.mu.Lock()
				seen.seen = nil
				seen.mu.Unlock()
				res, err = e.api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: "x", Config: &container.Config{Image: "i", Labels: own}})
				if res.ID != c.id || (err == nil) != (c.id != "") {
					t.Errorf("got %q, %v, want %q", res.ID, err, c.id)
				}
				if got := seen.count(create); got != c.calls {
					t.Errorf("%d creations, want %d", got, c.calls)
				}
			})
		})
	}
}

// calling matches calls of the Engine's client in Go source.
var calling = regexp.MustCompile(`\bc\.api\.([A-Z]\w+)\(`)

// notGuarded are calls that are made without the wrapper: Close makes no request, and the caller of ContainerWait
// sets the deadline.
var notGuarded = map[string]bool{"Close": true, "ContainerWait": true}

func TestGuard_everyCall(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var made, guards strings.Builder
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "guarded") {
			guards.Write(text)
		} else if !strings.HasSuffix(name, "_test.go") {
			made.Write(text)
		}
	}
	calls := calling.FindAllStringSubmatch(made.String(), -1)
	if len(calls) < 30 {
		t.Fatalf("only %d calls were found", len(calls))
	}
	api := reflect.TypeFor[client.APIClient]()
	for _, call := range calls {
		if _, ok := api.MethodByName(call[1]); !ok {
			t.Errorf("the client has no method %s", call[1])
		}
		if !notGuarded[call[1]] && !strings.Contains(guards.String(), "func (g *guarded) "+call[1]+"(") {
			t.Errorf("%s has no deadline: add it to calls.go and guarded.go", call[1])
		}
	}
}

func TestIsPassing(t *testing.T) {
	for name, c := range map[string]struct {
		status int // 0 for a reset
		says   string
		passes bool
	}{
		"a reset":            {0, "", true},
		"an internal error":  {500, "context deadline exceeded", true},
		"an unknown user":    {500, "unable to find user nobody-knows: no matching entries in passwd file", false},
		"a program's name":   {500, "OCI runtime create failed: exec: no: executable file not found in $PATH", false},
		"a port in use":      {500, "driver failed programming external connectivity: port is already allocated", false},
		"a full disk":        {500, "mkdir /x: no space left on device", false},
		"a missing image":    {404, "No such image", false},
		"a name that is had": {409, "in use", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, _ := guard(t, io.Discard, func(*http.Request, int) (*http.Response, error) {
				if c.status == 0 {
					return nil, syscall.ECONNRESET
				}
				return answer(c.status, `{"message":"`+c.says+`"}`), nil
			})
			err := e.StartContainer(t.Context(), "a")
			if got := IsPassing(err); got != c.passes {
				t.Errorf("%s: %t of %v", name, got, err)
			}
		})
	}
}

// Every container gets the profile.
func TestContainerCreate_Seccomp(t *testing.T) {
	const profile = `{"defaultAction":"SCMP_ACT_ERRNO"}`
	for _, tt := range []struct {
		name, profile string
		host          *container.HostConfig
		want          []string
	}{
		{"no configuration", profile, nil, []string{"seccomp=" + profile}},
		{"other options", profile, &container.HostConfig{SecurityOpt: []string{"no-new-privileges=true"}}, []string{"no-new-privileges=true", "seccomp=" + profile}},
		{"its own", profile, &container.HostConfig{SecurityOpt: []string{"seccomp={}"}}, []string{"seccomp={}"}},
		{"its own, colon", profile, &container.HostConfig{SecurityOpt: []string{"seccomp:unconfined"}}, []string{"seccomp:unconfined"}},
		{"privileged", profile, &container.HostConfig{Privileged: true}, nil},
		{"no profile", "", &container.HostConfig{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			e := &engineOf{f: func(r *http.Request, _ int) (*http.Response, error) {
				var body struct{ HostConfig container.HostConfig }
				err := json.NewDecoder(r.Body).Decode(&body)
				got = body.HostConfig.SecurityOpt
				return answer(201, `{"Id": "a"}`), err
			}}
			api, err := client.New(client.WithHTTPClient(&http.Client{Transport: e}), client.WithAPIVersion("1.44"))
			if err != nil {
				t.Fatal(err)
			}
			opts := client.ContainerCreateOptions{Name: "a", Config: &container.Config{Image: "i"}, HostConfig: tt.host}
			if _, err := Guard(api, GuardOptions{Seccomp: tt.profile}).ContainerCreate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The Engine sometimes counts endpoints that are gone, until it is restarted. That is not a configuration error.
func TestRemove_lostEndpoints(t *testing.T) {
	c, _ := guard(t, io.Discard, func(r *http.Request, _ int) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			return answer(403, `{"message":"error while removing network: network n id 1 has active endpoints"}`), nil
		}
		return answer(200, `{"Name":"n","Id":"1","Containers":{}}`), nil
	})
	err := c.Remove(t.Context(), Object{Kind: Network, ID: "1", Name: "n"})
	if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(fmt.Sprint(err), "remove network n") || !strings.Contains(fmt.Sprint(err), "has to be restarted") {
		t.Errorf("got %v", err)
	}
}
