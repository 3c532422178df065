package imagestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
)

// engineTimeout is how long the Engine may take to describe an image.
const engineTimeout = 5 * time.Second

// defaultSocket is where Docker's Engine listens.
const defaultSocket = "/var/run/docker.sock"

// maxAnswer is the maximum size of an answer of the Engine that is not an image, in bytes.
const maxAnswer = 4 << 20

// errNoSocket is the error for an Engine that is not on a unix socket.
var errNoSocket = errors.New("images are read only from an Engine on a unix socket")

// callEngine sends a GET request about an image to the local Engine.
func callEngine(ctx context.Context, image, call string) (*http.Response, error) {
	socket := defaultSocket
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		var ok bool
		if socket, ok = strings.CutPrefix(host, "unix://"); !ok {
			return nil, errNoSocket
		}
	}
	var d net.Dialer
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/images/"+image+"/"+call, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// engineID returns the id that a name has in the local Engine; empty if the Engine has no such image. For a plain name
// it is also empty if there is no Engine.
func (s *Store) engineID(ctx context.Context, r reference) (string, error) {
	id, err := inspect(ctx, r.given)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case r.source != dockerDaemon:
		if err != nil {
			s.opts.Logger.Debug("the image is not looked up in a Docker Engine", "image", r.text, "error", err)
		}
		return id, nil
	case errors.Is(err, errNoSocket):
		return "", &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: err, Hint: "use `docker save` and docker-archive:FILE, or set DOCKER_HOST=unix://PATH",
		}
	case errors.Is(err, fs.ErrPermission):
		return "", &fumehood.Error{
			Class: fumehood.ErrUnavailable, Err: fmt.Errorf("this user may not use the Docker Engine's socket: %w", err),
			Hint: "add the user to its group (usually docker), or name an image of a registry or a file: docker-archive:FILE, oci:FOLDER",
		}
	case err != nil:
		return "", &fumehood.Error{
			Class: fumehood.ErrUnavailable, Err: fmt.Errorf("no Docker Engine answers: %w", err),
			Hint: "start the Docker daemon, or name an image of a registry or a file: docker-archive:FILE, oci:FOLDER",
		}
	case id == "":
		return "", &fumehood.Error{
			Class: fumehood.ErrConfig, Err: errors.New("the Docker Engine has no such image"), Hint: "`docker images` lists what it has",
		}
	}
	return id, nil
}

// inspect asks the Engine for the id of an image. It returns "" if the Engine has no such image.
func inspect(ctx context.Context, image string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	resp, err := callEngine(ctx, image, "json")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return "", nil
	}
	body, err := readAll(resp.Body, "the Engine's answer", maxAnswer)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	var answer struct{ ID string }
	if err := json.Unmarshal(body, &answer); err != nil || answer.ID == "" {
		return "", errors.Join(errors.New("the Engine does not report the image's id"), err)
	}
	return answer.ID, nil
}

// export reads an image of the local Engine into a file. id is the image's id there.
func (s *Store) export(ctx context.Context, r reference, id string) (_ *contents, err error) {
	resp, err := callEngine(ctx, r.given, "get")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the Docker Engine does not export the image: %s", resp.Status)
	}
	f, err := s.tempFile(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	stream := &meter{ctx: ctx, r: resp.Body, count: newBudget(s.limits).stream, report: s.reporter(Progress{Image: r.text, Status: "Exporting"})}
	if _, err := io.Copy(f, stream); err != nil {
		return nil, fmt.Errorf("read image from the Docker Engine: %w", err)
	}
	members, err := index(f)
	if err != nil {
		return nil, err
	}
	found, err := members.docker(ctx, "", s.opts.Arch)
	if err != nil {
		return nil, err
	}
	found.engine, found.free = id, func() { f.Close() }
	return found, nil
}
