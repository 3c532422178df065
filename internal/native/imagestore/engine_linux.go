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

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/registry"
	"github.com/fumehood/fumehood/provider"
)

// engineTimeout is how long the Engine may take to describe an image.
const engineTimeout = 5 * time.Second

// engineSilence is how long the Engine may send less than registry.LeastSent bytes of an image. An Engine writes all layers to its own
// disk before it sends the first.
const engineSilence = 10 * time.Minute

// defaultSocket is where Docker's Engine listens.
const defaultSocket = "/var/run/docker.sock"

// maxAnswer is the maximum size of an answer of the Engine that is not an image, in bytes.
const maxAnswer = 4 << 20

// errNoSocket is the error for an Engine that is not on a unix socket.
var errNoSocket = errors.New("images are read only from an Engine on a unix socket")

// callEngine sends a GET request about an image to the local Engine, which may be silent for a time.
func callEngine(ctx context.Context, image, call string, silence time.Duration) (*http.Response, error) {
	socket := defaultSocket
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		var ok bool
		if socket, ok = strings.CutPrefix(host, "unix://"); !ok {
			return nil, errNoSocket
		}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Transport: registry.Impatient{Next: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Within: silence}}
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
		return "", fail(fumehood.ErrUnsupported, "use `docker save` and docker-archive:FILE, or set DOCKER_HOST=unix://PATH", "%w", err)
	case errors.Is(err, fs.ErrPermission):
		hint := "add the user to its group (usually docker), or name an image of a registry or a file: docker-archive:FILE, oci:FOLDER"
		return "", fail(fumehood.ErrUnavailable, hint, "this user may not use the Docker Engine's socket: %w", err)
	case err != nil:
		hint := "start the Docker daemon, or name an image of a registry or a file: docker-archive:FILE, oci:FOLDER"
		return "", fail(fumehood.ErrUnavailable, hint, "no Docker Engine answers: %w", err)
	case id == "":
		return "", fail(fumehood.ErrConfig, "`docker images` lists what it has", "the Docker Engine has no such image")
	}
	return id, nil
}

// inspect asks the Engine for the id of an image. It returns "" if the Engine has no such image.
func inspect(ctx context.Context, image string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	resp, err := callEngine(ctx, image, "json", engineTimeout)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", nil
	default:
		return "", errors.New(resp.Status)
	}
	var answer struct{ ID string }
	body, err := readAll(resp.Body, "the Engine's answer", maxAnswer)
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err == nil && answer.ID == "" {
		err = errors.New("the Engine does not report the image's id")
	}
	return answer.ID, err
}

// export reads an image of the local Engine into a file. id is the image's id there.
func (s *Store) export(ctx context.Context, r reference, id string) (*contents, error) {
	resp, err := callEngine(ctx, r.given, "get", s.silence)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the Docker Engine does not export the image: %s", resp.Status)
	}
	f, err := os.OpenFile(s.path(unfinished, ""), os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		return nil, err
	}
	report, b := s.reporter(provider.Progress{Image: r.text, Status: "Exporting"}), newBudget(s.limits)
	stream := &meter{ctx: ctx, r: resp.Body, seen: func(n int) error { return errors.Join(report(n), b.stream(n)) }}
	if _, err := io.Copy(f, stream); err != nil {
		return nil, errors.Join(fmt.Errorf("read image from the Docker Engine: %w", err), f.Close())
	}
	from, err := openArchive(f)
	if err != nil {
		return nil, err
	}
	found, err := from.image(ctx, dockerArchive, "")
	if err == nil {
		found.engine = id
	}
	return found, err
}
