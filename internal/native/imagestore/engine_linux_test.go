package imagestore

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/tier"
)

// docker calls the local Engine, and returns its answer.
func docker(t testing.TB, method, path string, body io.Reader) io.Reader {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", defaultSocket)
		},
	}}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "http://docker"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		tier.Missing(t, tier.Quick, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp.Body
}

// buildInEngine builds an image in the Engine for the time of the test.
func buildInEngine(t testing.TB, tag, dockerfile string) {
	t.Helper()
	answer := docker(t, http.MethodPost, "/build?networkmode=none&rm=1&forcerm=1&t="+url.QueryEscape(tag), bytes.NewReader(layerOf(t, file("Dockerfile", dockerfile))))
	out, err := io.ReadAll(answer)
	if err != nil || bytes.Contains(out, []byte(`"error"`)) {
		t.Fatal(string(out), err)
	}
}

func removeImage(t testing.TB, tag string) {
	t.Helper()
	docker(t, http.MethodDelete, "/images/"+tag, nil)
}

// exported describes the files of a container of an image that was never started.
func exported(t testing.TB, image string) map[string]string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"Image": image, "Cmd": []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	var created struct{ ID string }
	if err := json.NewDecoder(docker(t, http.MethodPost, "/containers/create", bytes.NewReader(body))).Decode(&created); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { docker(t, http.MethodDelete, "/containers/"+created.ID+"?force=1", nil) })
	return tarTree(t, docker(t, http.MethodGet, "/containers/"+created.ID+"/export", nil))
}

// withoutEngines removes what the Engine puts into each container, and devices, which the store leaves out.
func withoutEngines(tree map[string]string) map[string]string {
	for name, entry := range tree {
		for _, own := range []string{".dockerenv", "dev", "proc", "sys", "etc", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab"} {
			if name == own {
				delete(tree, name)
			}
		}
		if strings.HasPrefix(name, "dev/") || entry[0] == tar.TypeChar || entry[0] == tar.TypeBlock {
			delete(tree, name)
		}
	}
	return tree
}

func TestGet_sameAsDocker(t *testing.T) {
	tier.NeedDocker(t)
	tag := fmt.Sprintf("fumehood-test/imagestore-%d:1", os.Getpid())
	buildInEngine(t, tag, `FROM fumehood-test/busybox
USER root
RUN mkdir -p /a/b /opaque /gone && echo 1 > /a/file && ln /a/file /a/hard && ln -s ../a/file /a/soft && mkfifo /a/pipe && \
    cp /bin/busybox /a/su && chmod 6755 /a/su && chown 12:34 /a/su && echo x > /opaque/old && echo x > /gone/f && chmod 1777 /a/b
RUN rm -rf /opaque /gone && mkdir /opaque && echo y > /opaque/new && rm /a/hard && chown 5:6 /a/b
WORKDIR /a
ENV X=y
CMD ["/a/su"]
`)
	t.Cleanup(func() { removeImage(t, tag) })
	images := []string{tag, "fumehood-test/static:latest"}
	if tier.Of(t) == tier.All { // it is large
		images = append(images, "fumehood-test/python:latest")
	}
	for _, image := range images {
		t.Run(image, func(t *testing.T) {
			want := withoutEngines(exported(t, image))
			at := t.TempDir()
			saved := filepath.Join(at, "saved.tar")
			if out, err := exec.CommandContext(t.Context(), "docker", "save", "-o", saved, image).CombinedOutput(); err != nil {
				t.Fatal(string(out), err)
			}
			img, err := tarball.ImageFromPath(saved, nil)
			if err != nil {
				t.Fatal(err)
			}
			host := serve(t, nil)
			push(t, host+"/x", img)
			l, err := layout.Write(filepath.Join(at, "layout"), empty.Index)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.AppendImage(img); err != nil {
				t.Fatal(err)
			}
			s := newStore(t)
			id := get(t, s, "docker-daemon:"+image).ID
			for _, ref := range []string{"docker-daemon:" + image, "docker-archive:" + saved, "oci:" + filepath.Join(at, "layout"), host + "/x", image} {
				if s := newStore(t); image == tag { // a store of its own for each; large images share one
					id = get(t, s, "docker-daemon:"+image).ID
					sameTrees(t, withoutEngines(treeOf(t, merged(t, get(t, s, ref)))), want)
				}
				if got := get(t, s, ref); got.ID != id {
					t.Errorf("%s: %s, want %s", ref, got.ID, id)
				}
			}
			sameTrees(t, withoutEngines(treeOf(t, merged(t, get(t, s, id)))), want)
		})
	}
}

// A tag that the Engine builds again is seen by the next store, and at once with docker-daemon.
func TestGet_rebuilt(t *testing.T) {
	tier.NeedDocker(t)
	tag := fmt.Sprintf("fumehood-test/imagestore-rebuilt-%d", os.Getpid())
	t.Cleanup(func() { removeImage(t, tag) })
	ids := func(s *Store) (plain, daemon string) {
		t.Helper()
		return get(t, s, tag).ID, get(t, s, "docker-daemon:"+tag).ID
	}
	buildInEngine(t, tag, "FROM fumehood-test/static\nENV A=1\n")
	s := newStore(t)
	one, same := ids(s)
	buildInEngine(t, tag, "FROM fumehood-test/static\nENV A=2\n")
	old, two := ids(s)
	later, err := Open(s.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	now, also := ids(later)
	if one != same || old != one || two == one || now != two || also != two {
		t.Error(one, same, old, two, now, also)
	}
	img, err := later.Find(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if env := img.Config.Env; env[len(env)-1] != "A=2" {
		t.Error(env)
	}
}

// fakeEngine answers instead of the Engine until the end of the test.
func fakeEngine(t testing.TB, answer http.HandlerFunc) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	t.Setenv("DOCKER_HOST", "unix://"+socket)
}

func TestGet_engineErrors(t *testing.T) {
	closed := func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
	}
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	export := func(then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/json") {
				_, _ = io.WriteString(w, `{"Id":"sha256:1"}`)
				return
			}
			then(w, r)
		}
	}
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		class  error
	}{
		{"no image", status(404, `{"message":"no such image"}`), fumehood.ErrConfig},
		{"broken", status(500, "x"), fumehood.ErrUnavailable},
		{"no answer", closed, fumehood.ErrUnavailable},
		{"not JSON", status(200, "x"), fumehood.ErrUnavailable},
		{"endless", status(200, strings.Repeat("x", maxAnswer+1)), fumehood.ErrUnavailable},
		{"export broken", export(status(500, "x")), fumehood.ErrInfrastructure},
		{"export not a tar", export(status(200, strings.Repeat("no", 1000))), fumehood.ErrConfig},
		{"export too large", export(status(200, strings.Repeat("\x00", 2<<20))), fumehood.ErrLimit},
		{"export cut", export(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000000")
			_, _ = io.WriteString(w, "x")
		}), fumehood.ErrInfrastructure},
		{"export never begins", export(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), fumehood.ErrInfrastructure},
		{"export silent", export(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
			_ = http.NewResponseController(w).Flush() // the client sees an error
			<-r.Context().Done()
		}), fumehood.ErrInfrastructure},
	} {
		t.Run(test.name, func(t *testing.T) {
			fakeEngine(t, test.answer)
			s := newStore(t)
			s.silence = time.Second
			s.limits.bytes = 1 << 20
			fails(t, s, "docker-daemon:test", test.class)
		})
	}
	t.Run("none", func(t *testing.T) {
		noEngine(t)
		fails(t, newStore(t), "docker-daemon:test", fumehood.ErrUnavailable)
	})
	t.Run("remote", func(t *testing.T) {
		t.Setenv("DOCKER_HOST", "ssh://somewhere")
		fails(t, newStore(t), "docker-daemon:test", fumehood.ErrUnsupported)
	})
}

// A plain name needs no Engine, and an Engine that has ended takes no image away.
func TestGet_engineEnds(t *testing.T) {
	b := sample(t)
	file := strings.TrimPrefix(b.save(t), "docker-archive:")
	var exports atomic.Int32
	fakeEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/images/127.0.0.1:1/x:1/json" {
			exports.Add(1)
			http.ServeFile(w, r, file)
			return
		}
		_, _ = io.WriteString(w, `{"Id":"sha256:1"}`)
	})
	s := newStore(t)
	for range 3 {
		checkSample(t, get(t, s, "127.0.0.1:1/x:1"), b)
	}
	noEngine(t)
	later, err := Open(s.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkSample(t, get(t, later, "127.0.0.1:1/x:1"), b)
	if exports.Load() != 1 {
		t.Errorf("%d exports", exports.Load())
	}
	if _, err := s.Get(t.Context(), "127.0.0.1:1/other"); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Error(err)
	}
}

// An image that the Engine has built has no name. Its ID in the Engine may be another one than that of its config.
func TestGet_idInEngine(t *testing.T) {
	b := sample(t)
	file := strings.TrimPrefix(b.save(t), "docker-archive:")
	for name, id := range map[string]string{"config": b.id(), "manifest": "sha256:" + strings.Repeat("1", 64)} {
		t.Run(name, func(t *testing.T) {
			var exports atomic.Int32
			fakeEngine(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/images/" + id + "/json":
					_, _ = io.WriteString(w, `{"Id":"`+id+`"}`)
				case "/images/" + id + "/get":
					exports.Add(1)
					http.ServeFile(w, r, file)
				default:
					http.NotFound(w, r)
				}
			})
			s := newStore(t)
			checkSample(t, get(t, s, id), b)
			noEngine(t)
			checkSample(t, get(t, s, id), b)
			if exports.Load() != 1 {
				t.Errorf("%d exports", exports.Load())
			}
			if _, err := s.Get(t.Context(), "sha256:"+strings.Repeat("2", 64)); !errors.Is(err, ErrMissing) {
				t.Error(err)
			}
		})
	}
}
