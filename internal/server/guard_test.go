package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-the-test"
	var log logged
	c := serve(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Limits: Limits{Body: 1 << 20, Upload: 2 << 20}})
	c.opts.Token = token // serve's own requests had none
	auth := []string{"Authorization", "Bearer " + token}
	with := func(more ...string) []string { return append(more, auth...) }
	c.ok("GET", "/v1/version", nil, nil, with()...)
	for name, r := range map[string]struct {
		status  int
		headers []string
	}{
		"without a token":    {401, nil},
		"with a wrong token": {401, []string{"Authorization", "Bearer " + token + "x"}},
		"another scheme":     {401, []string{"Authorization", "Basic " + token}},
		"DNS rebinding":      {421, with("Host", "evil.example")},
		"a port of it":       {421, with("Host", "evil.example:80")},
		"a name with it":     {421, with("Host", "localhost.evil.example")},
		"a name as a port":   {421, with("Host", "localhost:8420.evil.example")},
		"a web page":         {403, with("Origin", "https://evil.example")},
		"a page of null":     {403, with("Origin", "null")},
		"a request of a tag": {403, with("Sec-Fetch-Site", "cross-site")},
		"the loopback":       {200, with("Host", "127.0.0.1:8420")},
		"the loopback's v6":  {200, with("Host", "[::1]:8420")},
		"a browser's bar":    {200, with("Sec-Fetch-Site", "none")},
	} {
		if got, body := c.answer("GET", "/v1/version", nil, r.headers...); got != r.status || strings.Contains(string(body), token) {
			t.Errorf("%s: got %d, want %d: %s", name, got, r.status, body)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 401, "/healthz/": 401, "//healthz": 401, "/v1/../healthz": 401} { // probes have no token
		if got, body := c.answer("GET", path, nil); got != want {
			t.Errorf("%s without a token: got %d, want %d: %s", path, got, want, body)
		}
	}
	if got, body := c.answer("GET", "/healthz", nil, "Host", "evil.example"); got != 421 {
		t.Errorf("/healthz of another server: %d %s", got, body)
	}
	var box api.Sandbox
	c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, &box, with()...)
	path := "/v1/sandboxes/" + box.ID
	for name, r := range map[string]struct {
		method, path string
		body         any
		status       int
		says         string
	}{
		"malformed JSON":      {"POST", path + "/run", []byte("{"), 400, ""},
		"other JSON":          {"POST", path + "/run", []byte("[]"), 422, "object"},
		"an unknown field":    {"POST", path + "/run", []byte(`{"args": ["true"], "secret-of-a-client": 1}`), 422, "secret-of-a-client"},
		"another case":        {"POST", path + "/run", []byte(`{"args": ["true"], "TIMEOUT_MS": -1}`), 422, "TIMEOUT_MS"},
		"of a spec":           {"POST", "/v1/sandboxes", []byte(`{"image": "i", "privileged": true}`), 422, "privileged"},
		"a wrong type":        {"POST", path + "/run", []byte(`{"args": "true"}`), 422, "args"},
		"no command":          {"POST", path + "/run", []byte(`{"args": []}`), 422, "args"},
		"a missing body":      {"POST", path + "/run", nil, 400, "body"},
		"an unknown query":    {"GET", path + "/stat?path=a&other=b", nil, 422, "other"},
		"a missing query":     {"GET", path + "/stat", nil, 422, "path"},
		"a huge body":         {"POST", path + "/run", bytes.Repeat([]byte(" "), 2<<20), 413, ""},
		"a huge stream":       {"POST", path + "/run", io.MultiReader(bytes.NewReader(bytes.Repeat([]byte(" "), 1<<20+10))), 413, ""},
		"a huge upload":       {"PUT", path + "/file?path=a", bytes.Repeat([]byte("x"), 3<<20), 413, ""},
		"a huge streamed one": {"PUT", path + "/file?path=a", io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("x"), 2<<20+10))), 413, ""},
		"an unknown path":     {"GET", "/v2/version", nil, 404, ""},
		"an unknown method":   {"PATCH", path, nil, 404, "PATCH"},
		"traversal":           {"GET", "/v1/sandboxes/..%2f..%2fversion", nil, 404, ""},
		"traversal, encoded":  {"GET", "/v1/sandboxes/%2e%2e", nil, 404, ""},
		"a NUL in a path":     {"GET", path + "/file?path=%00", nil, 400, ""},
		"a mode out of range": {"POST", path + "/chmod", []byte(`{"path": "a", "mode": 65535}`), 422, "mode"},
		"a NaN":               {"POST", path + "/run", []byte(`{"args": ["true"], "timeout_ms": NaN}`), 400, ""},
		"deep JSON":           {"POST", path + "/run", bytes.Repeat([]byte("["), 1<<19), 400, ""},
	} {
		// With Expect, a client that is refused sends no body, which could break the connection before the answer.
		status, body := c.answer(r.method, r.path, r.body, with("Expect", "100-continue")...)
		if status != r.status || !strings.Contains(string(body), r.says) || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%s: got %d %.300s, want %d with %q", name, status, body, r.status, r.says)
		}
	}
	run := sh("true")
	run.Env = map[string]string{"KEY": "secret-of-a-client"}
	c.ok("POST", path+"/run", run, nil, with("Idempotency-Key", c.lease+"-secret")...)
	for _, secret := range []string{token, c.lease, "secret", box.ID} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%q is in the log:\n%s", secret, log.String())
		}
	}
	if !strings.Contains(log.String(), `route="POST /v1/sandboxes/{sandbox}/run" status=200`) {
		t.Errorf("the log is\n%s", log.String())
	}
	c.opts.Token = "" // for serve's end
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "localhost:1": true, "localhost:65535": true, "127.0.0.1": true, "127.0.0.1:80": true, "[::1]": true, "[::1]:80": true,
		"": false, "evil.example": false, "localhost.": false, "localhost.evil.example": false, "evil.localhost": false, "xlocalhost": false, "localhost\n": false, "\nlocalhost": false,
		"localhost:": false, "localhost:80.evil.example": false, "localhost:80:80": false, "localhost:-1": false, "localhost:+1": false, "localhost:١": false, "localhost:123456": false,
		"localhost:http": false, "localhost:80/": false, "localhost@evil.example": false, "user@localhost": false, "localhost%2e": false, "localhoſt": false, "[localhost]": false, "[127.0.0.1]": false,
		"127.0.0.1.evil.example": false, "127.0.0.1:80.evil.example": false, "127.0.0.2": false, "127.1": false, "127x0x0x1": false, "0.0.0.0": false,
		"::1": false, "[::1": false, "::1]": false, "[[::1]]": false, "[::1]x": false, "[::1].evil.example": false, "[::1]:80.evil.example": false, "[::1%25lo]": false, "[::ffff:127.0.0.1]": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// raw sends bytes and returns what the server answers until it closes the connection or a second is over.
func (c *served) raw(text string) string {
	c.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(c.t.Context(), "unix", c.path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return err.Error()
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// A body has one length.
func TestGuard_smuggling(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	hidden := "GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, headers := range map[string]string{
		"both lengths":      fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", 5+len(hidden)),
		"two lengths":       "Content-Length: 0\r\nContent-Length: 50\r\n",
		"an unknown coding": "Transfer-Encoding: xchunked\r\n",
		"a blank name":      "Content-Length : 50\r\n",
	} {
		got := c.raw("POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers + "\r\n0\r\n\r\n" + hidden)
		if strings.Contains(got, c.Instance()+`"`) {
			t.Errorf("%s: the hidden request was answered:\n%s", name, got)
		}
	}
}

// Senders that are silent lose their connections, in each phase of a request.
func TestGuard_slowSender(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{silence: 300 * time.Millisecond})
	box := c.box()
	for name, head := range map[string]string{
		"a command": "POST " + box + "/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: " + c.lease + "\r\nContent-Length: 100\r\n\r\n{",
		"a file":    "PUT " + box + "/file?path=a&atomic=true HTTP/1.1\r\nHost: localhost\r\nFumehood-Lease: " + c.lease + "\r\nContent-Length: 100\r\n\r\nx",
	} {
		began := time.Now()
		got := c.raw(head)
		if took := time.Since(began); strings.Contains(got, " 200 ") || strings.Contains(got, " 204 ") || took < 200*time.Millisecond {
			t.Errorf("%s: after %v got %s", name, took, got)
		}
	}
	c.fails(404, fumehood.CodeNotFound, "GET", box+"/stat?path=a", nil)
}

// A body that cannot be read is the client's error, and says so.
func TestGuard_brokenBody(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{silence: 300 * time.Millisecond})
	box := c.box()
	const malformed, silent = "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "Content-Length: 100\r\n\r\nx"
	for name, r := range map[string]struct{ line, rest, status string }{
		"JSON, malformed":    {"POST " + box + "/run", malformed, "400"},
		"JSON, silent":       {"POST " + box + "/run", silent, "408"},
		"file, malformed":    {"PUT " + box + "/file?path=a", malformed, "400"},
		"file, silent":       {"PUT " + box + "/file?path=a", silent, "400"},
		"archive, malformed": {"PUT " + box + "/archive?path=.", malformed, "400"},
		"archive, silent":    {"PUT " + box + "/archive?path=.", silent, "400"},
		"unread, silent":     {"PUT " + box + "x/file?path=a", silent, "404"},
	} {
		got := c.raw(r.line + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: " + c.lease + "\r\n" + r.rest)
		if !strings.HasPrefix(got, "HTTP/1.1 "+r.status+" ") {
			t.Errorf("%s: want %s, got %s", name, r.status, got)
		}
	}
}

// What is left of a body that was answered before its end is no request.
func TestGuard_lateBody(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{silence: 300 * time.Millisecond})
	box := c.box()
	hidden := "GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, line := range []string{"POST /v1/leases", "POST " + box + "/run", "PUT " + box + "/file?path=a", "PUT " + box + "/archive?path=.", "PUT " + box + "x/file?path=a"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", c.path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: %s\r\nContent-Length: %d\r\n\r\n{", line, c.lease, 1+len(hidden))
		if err != nil {
			t.Fatal(err)
		}
		var first [12]byte
		if _, err := io.ReadFull(conn, first[:]); err != nil || !strings.HasPrefix(string(first[:]), "HTTP/1.1 4") {
			t.Errorf("%s: got %q, %v", line, first, err)
		}
		_, _ = io.WriteString(conn, hidden) // the server may have closed the connection
		if rest, _ := io.ReadAll(conn); strings.Contains(string(rest), c.Instance()) {
			t.Errorf("%s: the rest of the body was answered: %s", line, rest)
		}
	}
}

// A provider may read a body until the request has been answered.
func TestGuard_bodyReadMeanwhile(t *testing.T) {
	b := &body{ReadCloser: io.NopCloser(strings.NewReader("content")), control: http.NewResponseController(httptest.NewRecorder())}
	var all sync.WaitGroup
	all.Go(func() { _, _ = io.Copy(io.Discard, b) })
	all.Go(b.expect)
	all.Wait()
	if !b.ended.Load() {
		t.Error("the body has not ended")
	}
}

// Many connections at once, broken in each phase, leave nothing behind.
func TestGuard_connections(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	request := "POST " + box + "/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nFumehood-Lease: " + c.lease + "\r\nContent-Length: 16\r\n\r\n{\"args\":[\"true\"]}"
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", c.path)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, request[:i*len(request)/1000])
		})
	}
	all.Wait()
	c.ok("POST", box+"/run", sh("true"), nil)
	eventually(t, "no command runs", func() bool { return c.commands.Load() == 0 })
}

func TestPermit(t *testing.T) {
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "in"), t.TempDir()
	if err := os.MkdirAll(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	paths := []string{inside}
	for name, c := range map[string]struct {
		permit Permit
		spec   fumehood.Spec
		says   string // empty if it is permitted
	}{
		"an image":             {Permit{}, fumehood.Spec{Image: "i"}, ""},
		"a network":            {Permit{}, fumehood.Spec{Network: fumehood.Network{Mode: fumehood.NetworkBridge}}, "--allow-egress"},
		"an allowed network":   {Permit{Egress: true}, fumehood.Spec{Network: fumehood.Network{Mode: fumehood.NetworkBridge}}, ""},
		"allowed destinations": {Permit{}, fumehood.Spec{Network: fumehood.Network{Allow: []string{"a"}}}, "--allow-egress"},
		"the host's network":   {Permit{Egress: true}, fumehood.Spec{Network: fumehood.Network{Mode: fumehood.NetworkHost}}, "--allow-unsafe"},
		"another's network":    {Permit{Egress: true}, fumehood.Spec{Network: fumehood.Network{Mode: "other"}}, "--allow-unsafe"},
		"unsafe":               {Permit{}, fumehood.Spec{AllowUnsafe: true}, "--allow-unsafe"},
		"a runtime":            {Permit{}, fumehood.Spec{Runtime: "runc"}, "--allow-unsafe"},
		"a seccomp profile":    {Permit{}, fumehood.Spec{Seccomp: fumehood.SeccompBrowsers}, "--allow-unsafe"},
		"an allowed profile":   {Permit{Unsafe: true}, fumehood.Spec{Seccomp: fumehood.SeccompBrowsers}, ""},
		"no memory limit":      {Permit{}, fumehood.Spec{Limits: fumehood.Limits{Memory: fumehood.NoLimit}}, "--allow-unsafe"},
		"no process limit":     {Permit{}, fumehood.Spec{Limits: fumehood.Limits{PIDs: fumehood.NoLimit}}, "--allow-unsafe"},
		"much memory":          {Permit{}, fumehood.Spec{Limits: fumehood.Limits{Memory: 2 << 30}}, "--max-memory"},
		"kept":                 {Permit{}, fumehood.Spec{Keep: true, TTL: time.Hour}, "--allow-kept"},
		"kept for ever":        {Permit{Kept: true}, fumehood.Spec{Keep: true}, "ttl_ms"},
		"kept for a while":     {Permit{Kept: true}, fumehood.Spec{Keep: true, TTL: time.Hour}, ""},
		"a mount":              {Permit{}, fumehood.Spec{Mounts: []fumehood.Mount{{Host: inside}}}, "--allow-host-path"},
		"an allowed mount":     {Permit{HostPaths: paths}, fumehood.Spec{Mounts: []fumehood.Mount{{Host: inside}}}, ""},
		"another mount":        {Permit{HostPaths: paths}, fumehood.Spec{Mounts: []fumehood.Mount{{Host: inside}, {Host: outside}}}, outside},
		"a session's own":      {Permit{}, fumehood.Spec{Mounts: []fumehood.Mount{{Host: outside, Workspace: true}}}, ""},
		"a link out":           {Permit{HostPaths: paths}, fumehood.Spec{Mounts: []fumehood.Mount{{Host: filepath.Join(inside, "link")}}}, "is not allowed"},
		"a path out":           {Permit{HostPaths: paths}, fumehood.Spec{Mounts: []fumehood.Mount{{Host: inside + "/../x"}}}, "is not allowed"},
		"a pattern":            {Permit{Images: []string{"python:*"}}, fumehood.Spec{Image: "python:3.12"}, ""},
		"another image":        {Permit{Images: []string{"python:*"}}, fumehood.Spec{Image: "evil/python:3.12"}, "--allow-image"},
		"an image's file":      {Permit{}, fumehood.Spec{Image: "docker-archive:" + inside + "/i.tar"}, "--allow-host-path"},
		"an OCI archive":       {Permit{}, fumehood.Spec{Image: "oci-archive:i.tar:tag"}, "--allow-host-path"},
		"an OCI layout":        {Permit{}, fumehood.Spec{Image: "oci:" + inside}, "--allow-host-path"},
		"an allowed file":      {Permit{HostPaths: paths}, fumehood.Spec{Image: "docker-archive:" + inside + "/i.tar:tag"}, ""},
		"another file":         {Permit{HostPaths: paths}, fumehood.Spec{Image: "docker-archive:" + outside + "/i.tar"}, outside},
		"an image's link":      {Permit{HostPaths: paths}, fumehood.Spec{Image: "oci:" + inside + "/link"}, "is not allowed"},
		"a file and a pattern": {Permit{Images: []string{"docker-archive:*"}}, fumehood.Spec{Image: "docker-archive:i.tar"}, "--allow-host-path"},
		"a project":            {Permit{}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x"}}, "--allow-egress"},
		"an allowed project":   {Permit{Egress: true}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x"}}, ""},
		"its images":           {Permit{Egress: true, Images: []string{"i"}}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x"}}, "--allow-image"},
		"an unsafe project":    {Permit{Egress: true}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x", AllowUnsafe: true}}, "--allow-unsafe"},
		"a project's file":     {Permit{Egress: true}, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{"/etc/passwd"}}}, "--allow-host-path"},
		"a project's folder":   {Permit{Egress: true, HostPaths: paths}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x", Dir: outside}}, outside},
		"a Dockerfile":         {Permit{Egress: true, HostPaths: paths}, fumehood.Spec{Compose: &fumehood.Compose{Dockerfile: outside + "/Dockerfile"}}, outside},
		"only its file":        {Permit{Egress: true, HostPaths: []string{inside + "/c.yaml"}}, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{inside + "/c.yaml"}}}, `"` + inside + `"`},
		"only its Dockerfile":  {Permit{Egress: true, HostPaths: []string{inside + "/Dockerfile"}}, fumehood.Spec{Compose: &fumehood.Compose{Dockerfile: inside + "/Dockerfile"}}, `"` + inside + `"`},
		"its file and folder":  {Permit{Egress: true, HostPaths: paths}, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{inside + "/c.yaml"}}}, ""},
		"a file and content":   {Permit{Egress: true, HostPaths: []string{inside + "/e"}}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x", EnvFiles: []string{inside + "/e"}}}, ""},
		"variable files":       {Permit{Egress: true, HostPaths: paths}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x", EnvFiles: []string{outside + "/e"}}}, outside},
		"more to read":         {Permit{Egress: true, HostPaths: paths}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x", AllowRead: []string{outside}}}, outside},
		"host variables":       {Permit{Egress: true, HostPaths: paths}, fumehood.Spec{Compose: &fumehood.Compose{Content: "x", HostEnv: []string{"TOKEN"}}}, "variables of the server"},
	} {
		err := c.permit.check(&c.spec, Limits{Memory: 1 << 30})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
		if c.says == "" && c.spec.Limits.Memory != 1<<30 {
			t.Errorf("%s: %d bytes of memory", name, c.spec.Limits.Memory)
		}
	}
}

// Large bodies wait for each other, and small ones do not wait.
func TestLimits_bodies(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{silence: time.Second, bodies: 3 << 20, Limits: Limits{Body: 3 << 20}})
	box := c.box()
	large := api.Cmd{Args: []api.Text{"sh", "-c", "echo began; sleep 600"}, Stdin: make([]byte, 2<<20)}
	held, hold := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		text, err := json.Marshal(large)
		if err != nil {
			t.Error(err)
			return
		}
		req, err := http.NewRequestWithContext(held, "POST", "http://localhost"+box+"/run", bytes.NewReader(text))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = http.Header{"Fumehood-Lease": {c.lease}, "Content-Type": {"application/json"}}
		resp, err := c.http.Do(req)
		if err == nil {
			defer resp.Body.Close()
			t.Error("the command ended")
		}
	})
	eventually(t, "the command has started", func() bool { return c.commands.Load() == 1 })
	c.fails(429, fumehood.CodeLimit, "POST", box+"/run", api.Cmd{Args: []api.Text{"true"}, Stdin: make([]byte, 2<<20)})
	c.ok("POST", box+"/run", sh("true"), nil)
	hold()
	all.Wait()
	c.ok("POST", box+"/run", api.Cmd{Args: []api.Text{"true"}, Stdin: make([]byte, 2<<20)}, nil)
}

// Uploads without a length are held in files, which have a limit together. Others are not held.
func TestLimits_uploads(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{spool: 2 << 20, Limits: Limits{Upload: 2 << 20}})
	box := c.box()
	chunked := func(r io.Reader) io.Reader { return io.MultiReader(r) }
	put := func(name string, body any) (int, []byte) { return c.answer("PUT", box+"/file?path="+name, body) }
	const tooMuch = 5 << 17 // beside the first upload
	content, feed := io.Pipe()
	var first sync.WaitGroup
	first.Go(func() {
		if status, text := put("first", chunked(content)); status != http.StatusNoContent {
			t.Errorf("the first: got %d %s", status, text)
		}
	})
	if _, err := feed.Write(make([]byte, 3<<19)); err != nil {
		t.Error(err)
	}
	eventually(t, "the first upload is held", func() bool {
		free := c.spooled.TryAcquire(tooMuch)
		if free {
			c.spooled.Release(tooMuch)
		}
		return !free
	})
	if status, text := put("second", chunked(bytes.NewReader(make([]byte, tooMuch)))); status != http.StatusTooManyRequests || !strings.Contains(string(text), "Content-Length") {
		t.Errorf("the second: got %d %s", status, text)
	}
	if status, text := put("known", make([]byte, 1<<20)); status != http.StatusNoContent {
		t.Errorf("one with a length: got %d %s", status, text)
	}
	if err := feed.Close(); err != nil {
		t.Error(err)
	}
	first.Wait()
	if status, text := put("second", chunked(bytes.NewReader(make([]byte, tooMuch)))); status != http.StatusNoContent {
		t.Errorf("after the first: got %d %s", status, text)
	}
	if !c.spooled.TryAcquire(2 << 20) {
		t.Error("bytes of uploads that ended are counted")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c0 := serve(t, Options{})
	c0.fails(400, fumehood.CodeConfig, "POST", "/v1/sandboxes", fumehood.Spec{Binary: "x"})
	c0.fails(400, fumehood.CodeConfig, "POST", "/v1/sandboxes", fumehood.Spec{ConfigFile: "x"})
	c := serve(t, Options{Limits: Limits{Sandboxes: 1, Commands: 1}})
	box := c.box()
	c.fails(429, fumehood.CodeLimit, "POST", "/v1/sandboxes", fumehood.Spec{})
	var p api.Process
	c.ok("POST", box+"/processes", sh("sleep 600"), &p)
	c.fails(429, fumehood.CodeLimit, "POST", box+"/run", sh("true"))
	_, metrics := c.answer("GET", "/metrics", nil)
	for _, line := range []string{"fumehood_sandboxes 1\n", "fumehood_commands 1\n", "fumehood_leases 1\n", "fumehood_sandboxes_starting 0\n", "fumehood_sandboxes_max 1\n", "fumehood_draining 0\n", "fumehood_starts_refused_total 1\n", `fumehood_requests_total{status="4xx"} 2`} {
		if !strings.Contains(string(metrics), line) {
			t.Errorf("%q is missing:\n%s", line, metrics)
		}
	}
	c.ok("POST", box+"/processes/"+p.ID+"/kill", struct{}{}, nil)
	eventually(t, "a command may run", func() bool {
		status, _ := c.answer("POST", box+"/run", sh("true"))
		return status == http.StatusOK
	})
	c.ok("DELETE", box, nil, nil)
	c.box()
	if status, text := c.answer("GET", "/healthz", nil); status != 200 || string(text) != "ok\n" {
		t.Errorf("%d %s", status, text)
	}
}

func TestListen(t *testing.T) {
	ctx := t.Context()
	for address, says := range map[string]string{
		"0.0.0.0:0": "--tls-cert", "[::]:0": "--tls-cert", ":0": "not an IP address", "example.com:80": "not an IP address", "127.0.0.1": "HOST:PORT",
	} {
		if _, err := ListenTCP(ctx, address, TLS{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := ListenUnix(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := ListenUnix(ctx, path); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// One that a killed server left is replaced; another file is not.
	left, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(ctx), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = ListenUnix(ctx, path); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(ctx, file); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left: %v", all)
	}
}

// A killed server leaves the folder of its private socket, which the next one removes.
func TestPrivateSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "private-") // the path of a test's own folder is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	listens := func() (path string, l net.Listener) {
		path, _, err := PrivateSocket(t.Context())
		if err == nil {
			l, err = ListenUnix(t.Context(), path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path, l
	}
	killed, l := listens()
	l.(*named).path = "" // the socket stays
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lives, l := listens()
	defer l.Close()
	path, remove, err := PrivateSocket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info, err)
	}
	for path, want := range map[string]bool{killed: false, lives: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s exists: %v", path, err)
		}
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
}
