package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/test/dockertest"
)

// rawDaemon sends requests to the daemon directly, without Fumehood's client.
type rawDaemon struct {
	t      *testing.T
	client *http.Client
}

func newRawDaemon(t *testing.T) *rawDaemon {
	t.Helper()
	socket := dockertest.Socket(t, engineOf(t))
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &rawDaemon{t, &http.Client{Transport: transport}}
}

// ask sends a request. A body that is not a reader is sent as JSON. If answer is not nil, the response is decoded into
// it.
func (d *rawDaemon) ask(method, path string, body, answer any) {
	d.t.Helper()
	contentType := "application/x-tar"
	content, is := body.(io.Reader)
	if !is {
		text, err := json.Marshal(body)
		if err != nil {
			d.t.Fatal(err)
		}
		content, contentType = bytes.NewReader(text), "application/json"
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(d.t.Context()), method, "http://docker/v1.41"+path, content)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if res.StatusCode >= 300 && (method != http.MethodDelete || res.StatusCode != http.StatusNotFound) {
		d.t.Fatalf("%s %s: %s: %s", method, path, res.Status, text)
	}
	if answer == nil {
		return
	}
	if err := json.Unmarshal(text, answer); err != nil {
		d.t.Fatal(err)
	}
}

// tree returns a file system as a tar stream. A name that ends with "/" is a directory, content "-> x" a link to x.
func tree(t *testing.T, files ...string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o755, Size: int64(len(files[i+1]))}
		target, isLink := strings.CutPrefix(files[i+1], "-> ")
		switch {
		case strings.HasSuffix(h.Name, "/"):
			h.Typeflag = tar.TypeDir
		case isLink:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(tw, files[i+1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func (d *rawDaemon) makeVolume(name string, labels map[string]string) {
	d.t.Helper()
	d.ask("POST", "/volumes/create", map[string]any{"Name": name, "Labels": labels}, nil)
	d.t.Cleanup(func() { d.ask("DELETE", "/volumes/"+name, nil, nil) })
}

// importImage creates an image with a name.
func (d *rawDaemon) importImage(repo, tag string, content io.Reader, changes ...string) {
	d.t.Helper()
	q := url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}, "changes": changes}
	d.ask("POST", "/images/create?"+q.Encode(), content, nil)
	d.t.Cleanup(func() { d.ask("DELETE", "/images/"+repo+":"+tag, nil, nil) })
}
