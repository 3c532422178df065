package server

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/local"
)

// served is a server over the local provider, and a client of it.
type served struct {
	*Server
	t     *testing.T
	http  *http.Client
	path  string
	state string
	stop  func()
	lease string
}

// serve starts a server on a unix socket, and opens a lease that is held for the test.
func serve(t *testing.T, opts Options) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve-")
	if err != nil {
		t.Fatal(err)
	}
	c := &served{t: t, path: filepath.Join(dir, "s"), state: filepath.Join(dir, "state")}
	opts.Local, opts.sessions = true, filepath.Join(dir, "sessions")
	opts.Open = func(context.Context, func(provider.Progress)) (fumehood.Provider, error) {
		return local.New(local.Options{StateDir: c.state})
	}
	c.Server = New(t.Context(), opts)
	l, err := ListenUnix(t.Context(), c.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(ctx, l) }()
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.http.CloseIdleConnections()
		if left := c.left(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { c.stop() })
	c.http = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.path)
	}}}
	var opened api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &opened)
	c.lease = opened.ID
	c.hold(t.Context())
	return c
}

// left returns the folders of sandboxes.
func (c *served) left() []string {
	all, _ := filepath.Glob(filepath.Join(c.state, "*"))
	sessions, _ := filepath.Glob(filepath.Join(filepath.Dir(c.state), "sessions", "session-*"))
	return append(all, sessions...)
}

// hold holds the lease until ctx ends.
func (c *served) hold(ctx context.Context) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/v1/leases/"+c.lease+"/hold", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req) //nolint:bodyclose // the goroutine closes it
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		c.t.Error(resp.Status)
	}
	go func() {
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
}

// send sends a request with a body of JSON or bytes.
func (c *served) send(method, path string, body any, headers ...string) *http.Response {
	c.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	case io.Reader:
		r = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			c.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://localhost"+path, r)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Fumehood-Lease", c.lease)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// answer returns the body of an answer.
func (c *served) answer(method, path string, body any, headers ...string) (int, []byte) {
	c.t.Helper()
	resp := c.send(method, path, body, headers...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, data
}

// ok sends a request that must succeed, and decodes its answer.
func (c *served) ok(method, path string, body, to any, headers ...string) {
	c.t.Helper()
	status, data := c.answer(method, path, body, headers...)
	if status >= 300 {
		c.t.Fatalf("%s %s: %d %s", method, path, status, data)
	}
	if to != nil {
		if err := json.Unmarshal(data, to); err != nil {
			c.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
}

// fails sends a request that must fail with a status and a code.
func (c *served) fails(status int, code fumehood.Code, method, path string, body any, headers ...string) {
	c.t.Helper()
	got, data := c.answer(method, path, body, headers...)
	var f errorAnswer
	if err := json.Unmarshal(data, &f); err != nil || got != status || f.Body.Code != code || f.Body.Message == "" {
		c.t.Errorf("%s %.200s: got %d %s, want %d with code %s", method, path, got, data, status, code)
	}
}

// box starts a sandbox and returns its path.
func (c *served) box() string {
	c.t.Helper()
	var box api.Sandbox
	c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, &box)
	return "/v1/sandboxes/" + box.ID
}

func sh(script string) api.Cmd { return api.Cmd{Args: []api.Text{"sh", "-c", api.Text(script)}} }

func TestRun(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Version: "v1"})
	var v api.Version
	c.ok("GET", "/v1/version", nil, &v)
	if v.API != api.Number || v.Version != "v1" || v.Instance != c.Instance() {
		t.Errorf("got %+v", v)
	}
	box := c.box()
	cmd := sh(`cat; printf '\377'; echo error >&2; exit 3`)
	cmd.Stdin = []byte("in\n")
	var res fumehood.Result
	c.ok("POST", box+"/run", cmd, &res)
	if res.Outcome != fumehood.Exited || res.ExitCode != 3 || string(res.Stdout.Bytes) != "in\n\xff" || res.Stderr.Text() != "error\n" || res.Duration <= 0 {
		t.Errorf("got %+v", res)
	}
	cmd = sh("sleep 600")
	cmd.Timeout = 100
	c.ok("POST", box+"/run", cmd, &res)
	if res.Outcome != fumehood.TimedOut {
		t.Errorf("got %+v", res)
	}
	cmd = sh("true")
	cmd.CPUTime = 1500.5 // the local provider counts no processor time
	c.fails(422, fumehood.CodeUnsupported, "POST", box+"/run", cmd)
	c.fails(422, fumehood.CodeProgramNotFound, "POST", box+"/run", api.Cmd{Args: []api.Text{"no-such-program"}})
	c.fails(400, fumehood.CodeConfig, "POST", box+"/run?service=none", sh("true"))
	c.fails(429, fumehood.CodeLimit, "POST", box+"/run", api.Cmd{Args: []api.Text{"true"}, StdoutCap: 1 << 40})
	c.ok("DELETE", box, nil, nil)
	c.fails(404, api.CodeSandboxNotFound, "GET", box, nil)
	if left := c.left(); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	content := bytes.Repeat([]byte("0123456789abcdef"), 400_000) // more than a part of a range
	c.ok("PUT", box+"/file?path=a/b&mode=384", content, nil)
	c.ok("PUT", box+"/file?path=a/streamed", io.MultiReader(bytes.NewReader(content[:5]), bytes.NewReader(content[5:])), nil)
	for query, want := range map[string][]byte{
		"path=a/b": content, "path=a/streamed": content, "path=a/b&offset=5": content[5:], "path=a/b&offset=3&length=4": content[3:7],
		"path=a/b&offset=1&length=6000000": content[1:6000001], "path=a/b&length=0": {}, "path=a/b&offset=99999999": {},
		"path=a/b&max_bytes=6400000": content, "path=a/b&max_bytes=-1": content, "path=a/b&max_bytes=9223372036854775807": content,
		"path=a/b&offset=5&length=9&max_bytes=9": content[5:14],
	} {
		status, got := c.answer("GET", box+"/file?"+query, nil)
		if status != 200 || !bytes.Equal(got, want) {
			t.Errorf("%s: %d with %d bytes, want %d", query, status, len(got), len(want))
		}
	}
	for _, query := range []string{"max_bytes=6399999", "max_bytes=10&offset=1", "max_bytes=10&length=11"} {
		c.fails(413, fumehood.CodeTooLarge, "GET", box+"/file?path=a/b&"+query, nil)
	}
	var info api.FileInfo
	c.ok("GET", box+"/stat?path=a/b", nil, &info)
	if info.Type != "file" || info.Size != int64(len(content)) || info.Mode != 0o600 || info.Name != "b" {
		t.Errorf("got %+v", info)
	}
	c.ok("POST", box+"/mkdir", map[string]any{"path": "d/e", "parents": true, "mode": 0o1777}, nil)
	c.ok("POST", box+"/chmod", map[string]any{"path": "a/b", "mode": 0o640}, nil)
	c.ok("POST", box+"/rename", map[string]any{"path": "a/b", "to": "d/c"}, nil)
	var list fileList
	c.ok("GET", box+"/list?path=d", nil, &list)
	if len(list.Files) != 2 || list.Files[0].Mode != 0o640 || list.Files[1].Mode != 0o1777 || list.Files[1].Type != "directory" {
		t.Errorf("got %+v", list)
	}
	_, walk := c.answer("GET", box+"/walk?path=d", nil)
	if got := strings.Count(string(walk), "\n"); got != 3 || !strings.Contains(string(walk), `"path":"e"`) {
		t.Errorf("got %s", walk)
	}
	status, archive := c.answer("GET", box+"/archive?path=d", nil)
	if status != 200 {
		t.Fatal(status)
	}
	c.fails(413, fumehood.CodeTooLarge, "GET", box+"/archive?max_bytes=1023&path=d", nil)
	c.ok("POST", box+"/mkdir", map[string]any{"path": "f"}, nil)
	c.ok("PUT", box+"/archive?path=f", archive, nil)
	c.ok("GET", box+"/stat?path=f/d/c", nil, &info)
	c.ok("POST", box+"/remove", map[string]any{"path": "f", "recursive": true}, nil)
	c.fails(404, fumehood.CodeNotFound, "GET", box+"/stat?path=f", nil)
	c.fails(404, fumehood.CodeNotFound, "GET", box+"/file?path=f&offset=1", nil)
	c.fails(409, fumehood.CodeIsDirectory, "GET", box+"/file?path=d", nil)
	c.fails(409, fumehood.CodeExists, "POST", box+"/mkdir", map[string]any{"path": "d"})
	c.fails(409, fumehood.CodeNotEmpty, "POST", box+"/remove", map[string]any{"path": "d"})
	var file bytes.Buffer // an archive whose file would replace the directory
	w := tar.NewWriter(&file)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: ".", Mode: 0o644, Typeflag: tar.TypeReg}), w.Close()); err != nil {
		t.Fatal(err)
	}
	c.fails(409, fumehood.CodeIsDirectory, "PUT", box+"/archive?path=d", file.Bytes())
}

// broken is a stream that fails after a few bytes.
type broken struct{ read, closed bool }

func (b *broken) Read(p []byte) (int, error) {
	if b.read {
		return 0, fumehood.ErrPermission
	}
	b.read = true
	return copy(p, "a few bytes"), nil
}

func (b *broken) Close() error { b.closed = true; return nil }

// A stream that fails in its first part is an error, not a broken connection.
func TestDownload_first(t *testing.T) {
	b := &broken{}
	if _, err := download(typeTar, b, -1, nil); !errors.Is(err, fumehood.ErrPermission) || !b.closed {
		t.Errorf("got %v, closed: %t", err, b.closed)
	}
}

// A file of the kernel, which says that it has 0 or 4096 bytes, is read to its end.
func TestFiles_kernel(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	for _, file := range []string{"/proc/version", "/proc/filesystems", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)
			continue
		}
		status, got := c.answer("GET", box+"/file?path="+file, nil)
		if status != 200 || !bytes.Equal(got, want) {
			t.Errorf("%s: %d with %q, want %q", file, status, got, want)
		}
	}
	const large = "/proc/kallsyms" // more than the first part
	if _, err := os.Stat(large); err != nil {
		t.Skip(err)
	}
	if status, got := c.answer("GET", box+"/file?path="+large, nil); status != 200 || len(got) < 2*firstPart {
		t.Errorf("%s: %d with %d bytes", large, status, len(got))
	}
}

// events reads the events of a command until its end, or n of them if n is not 0.
func (c *served) events(path string, n int) (all []api.Event) {
	c.t.Helper()
	resp := c.send("GET", path, nil)
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for n == 0 || len(all) < n {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if n == 0 && err == io.EOF {
				return all
			}
			c.t.Fatalf("%v after %+v", err, all)
		}
		var ev api.Event
		if err := json.Unmarshal(line, &ev); err != nil {
			c.t.Fatal(err)
		}
		if ev.Type != api.EventHeartbeat {
			all = append(all, ev)
		}
	}
	return all
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	cmd := sh("echo one; read a; echo two $a; echo error >&2; exit 4")
	cmd.StdinPipe = true
	var p api.Process
	c.ok("POST", box+"/processes", cmd, &p)
	path := box + "/processes/" + p.ID
	first := c.events(path+"/events", 1)
	if string(first[0].Data) != "one\n" || first[0].Stream != "stdout" || first[0].Offset != 0 {
		t.Errorf("got %+v", first)
	}
	c.ok("POST", path+"/stdin", []byte("x\n"), nil, "Content-Type", "application/octet-stream")
	rest := map[string]string{}
	all := c.events(path+"/events?stdout=2", 0) // after a connection that broke
	for _, ev := range all {
		rest[ev.Stream] += string(ev.Data)
	}
	if end := all[len(all)-1]; rest["stdout"] != "e\ntwo x\n" || rest["stderr"] != "error\n" || end.Type != api.EventEnd || end.Result.ExitCode != 4 {
		t.Errorf("got %q, %+v", rest, all)
	}
	var res fumehood.Result
	c.ok("GET", path+"/result", nil, &res)
	var list processList
	c.ok("GET", box+"/processes", nil, &list)
	if res.ExitCode != 4 || len(list.Processes) != 1 || !list.Processes[0].Ended {
		t.Errorf("got %+v, %+v", res, list)
	}
	c.ok("DELETE", path, nil, nil)
	c.fails(404, fumehood.CodeUnavailable, "GET", path, nil)

	c.ok("POST", box+"/processes", sh("sleep 600"), &p)
	path = box + "/processes/" + p.ID
	c.fails(400, fumehood.CodeConfig, "DELETE", path, nil)
	c.ok("POST", path+"/signal", map[string]int{"signal": 15}, nil)
	c.ok("GET", path+"/result", nil, &res)
	if res.Outcome != fumehood.Signaled || res.Signal != 15 {
		t.Errorf("got %+v", res)
	}
	c.ok("POST", path+"/kill", struct{}{}, nil)
}

// A reader that is slow, and comes back after a broken connection, misses nothing: the command waits for it.
func TestEvents_slowReader(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	var p api.Process
	const size = 5 << 20
	c.ok("POST", box+"/processes", sh(fmt.Sprintf("while [ ! -e read ]; do sleep 0.01; done; head -c %d /dev/zero | tr '\\0' x", size)), &p)
	path := box + "/processes/" + p.ID
	got := int64(0)
	for got < size {
		resp := c.send("GET", fmt.Sprintf("%s/events?stdout=%d", path, got), nil)
		if got == 0 { // from now on the command waits for its reader
			c.ok("POST", box+"/processes", sh("touch read"), new(api.Process))
		}
		in := bufio.NewReader(resp.Body)
		for range 20 {
			line, err := in.ReadBytes('\n')
			var ev api.Event
			if err == nil {
				err = json.Unmarshal(line, &ev)
			}
			if err != nil {
				t.Fatal(err)
			}
			if ev.Type == api.EventOutput {
				if ev.Offset != got {
					t.Fatalf("at %d, want %d", ev.Offset, got)
				}
				got += int64(len(ev.Data))
			}
			if ev.Type == api.EventEnd {
				break
			}
		}
		var now api.Process
		c.ok("GET", path, nil, &now)
		if now.Ended && got < size/2 {
			t.Fatalf("the command has ended, with %d bytes read", got)
		}
		resp.Body.Close()
	}
	if all := c.events(fmt.Sprintf("%s/events?stdout=%d", path, got), 1); all[0].Type != api.EventEnd || all[0].Result.Stdout.Total != size {
		t.Errorf("got %+v", all)
	}
}

// Without a reader, output does not stop a command. A late reader gets what the result keeps, and sees what is missing.
func TestEvents_noReader(t *testing.T) {
	t.Parallel()
	const total = 8000000
	cases := map[string]struct {
		stdout, stderr int64 // caps
		missing        int64 // of standard output
		fewest         int64 // at least so many bytes are missing
	}{
		"all is kept":     {},
		"the end is kept": {stdout: 5000000, missing: total - 5000000},
		"nothing is kept": {stdout: fumehood.KeepNone, stderr: fumehood.KeepNone, fewest: total - 4*window},
	}
	for name, cs := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, Options{grace: 2 * time.Minute})
			box := c.box()
			cmd := sh(fmt.Sprintf("echo begin >&2; head -c %d /dev/zero | tr '\\0' x", total))
			cmd.Timeout, cmd.StdoutCap, cmd.StderrCap = 60000, cs.stdout, cs.stderr
			var p api.Process
			c.ok("POST", box+"/processes", cmd, &p)
			var res fumehood.Result
			c.ok("GET", box+"/processes/"+p.ID+"/result", nil, &res)
			if res.Outcome != fumehood.Exited || res.Stdout.Total != total {
				t.Errorf("got %v, %d bytes", res.Outcome, res.Stdout.Total)
			}
			var missing int64
			next := map[string]int64{}
			for _, ev := range c.events(box+"/processes/"+p.ID+"/events", 0) {
				if ev.Type == api.EventOutput {
					if ev.Stream == "stdout" {
						missing += ev.Offset - next[ev.Stream]
					}
					next[ev.Stream] = ev.Offset + int64(len(ev.Data))
				}
			}
			if next["stdout"] != total || next["stderr"] != 6 {
				t.Errorf("accounted for %v", next)
			}
			if missing != cs.missing && cs.fewest == 0 || missing < cs.fewest {
				t.Errorf("%d bytes are missing", missing)
			}
		})
	}
}

// A command waits for a reader that was announced. Its time limit does not count that.
func TestEvents_announced(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{grace: 5 * time.Second})
	box := c.box()
	cmd := sh("head -c 8000000 /dev/zero; touch written")
	cmd.Events, cmd.Timeout, cmd.StdoutCap = true, 3000, fumehood.KeepNone
	var p api.Process
	c.ok("POST", box+"/processes", cmd, &p)
	began := time.Now()
	var res fumehood.Result
	c.ok("GET", box+"/processes/"+p.ID+"/result", nil, &res)
	if res.Outcome != fumehood.Exited || time.Since(began) < 3*time.Second {
		t.Errorf("%v after %v", res.Outcome, time.Since(began))
	}
	cmd.Detach = true
	c.fails(400, fumehood.CodeConfig, "POST", box+"/processes", cmd)
	cmd.Detach = false
	c.fails(400, fumehood.CodeConfig, "POST", box+"/run", cmd)
}

func eventually(t *testing.T, condition string, is func() bool) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	limit := time.After(20 * time.Second)
	for !is() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("not within 20 s: %s", condition)
		}
	}
}
