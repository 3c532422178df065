// Package buildkit builds images with BuildKit's program buildctl, where there is no Docker Engine.
package buildkit

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
)

// Client is a BuildKit daemon. It may be used concurrently.
type Client struct{ program, address string }

// answerWithin is how long the daemon may take to answer.
const answerWithin = 5 * time.Second

// maxSaid is how much of the output of a program an error quotes, in bytes.
const maxSaid = 2 << 10

// Find returns the daemon at $BUILDKIT_HOST, or else at BuildKit's default socket, of root or without root. The error is
// an ErrUnavailable if there is no program buildctl or the daemon does not answer it.
func Find(ctx context.Context) (*Client, error) {
	fail := func(err error) (*Client, error) {
		return nil, &fumehood.Error{Op: "connect to BuildKit", Class: fumehood.ErrUnavailable, Err: err}
	}
	program, err := exec.LookPath("buildctl")
	if err != nil {
		return fail(errors.New("no program buildctl"))
	}
	address := os.Getenv("BUILDKIT_HOST")
	for _, dir := range []string{"/run", os.Getenv("XDG_RUNTIME_DIR")} {
		socket := filepath.Join(dir, "buildkit/buildkitd.sock")
		if _, err := os.Stat(socket); err == nil && address == "" && dir != "" {
			address = "unix://" + socket
		}
	}
	if address == "" {
		return fail(errors.New("no socket of buildkitd"))
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, "--addr", address, "debug", "workers").CombinedOutput()
	if err != nil {
		return fail(fmt.Errorf("%s: %w: %.*s", address, err, maxSaid, strings.TrimSpace(string(output))))
	}
	return &Client{program, address}, nil
}

// buildArgs returns the arguments of buildctl.
func buildArgs(o image.Order, archive string) []string {
	args := []string{
		"build", "--progress", "rawjson", "--frontend", "dockerfile.v0", "--local", "context=" + o.Context, "--local", "dockerfile=" + filepath.Dir(o.Dockerfile),
		"--output", fields("type=oci", "dest="+archive, "name=docker.io/library/"+o.Tags[0], "compression=uncompressed"),
	}
	opts := map[string]string{"filename": filepath.Base(o.Dockerfile)}
	for key, value := range map[string]string{"target": o.Target, "platform": o.Platform, "force-network-mode": o.Network} {
		if value != "" {
			opts[key] = value
		}
	}
	if o.NoCache {
		opts["no-cache"] = "" // of all stages
	}
	for key, value := range o.Args {
		opts["build-arg:"+key] = value
	}
	for key, value := range o.Labels {
		opts["label:"+key] = value
	}
	for _, key := range slices.Sorted(maps.Keys(opts)) {
		args = append(args, "--opt", key+"="+opts[key])
	}
	for _, s := range o.Secrets {
		args = append(args, "--secret", fields("id="+s.ID, "src="+s.File))
	}
	return args
}

// fields returns a value of several fields, of which none can be read as two.
func fields(all ...string) string {
	var line strings.Builder
	w := csv.NewWriter(&line)
	_ = w.Write(all) // to memory
	w.Flush()
	return strings.TrimSuffix(line.String(), "\n")
}

// Build builds an image and writes it to a file, an OCI archive, under its first tag. Context and Dockerfile are absolute
// paths, of a folder and a file, and secrets are in files. The network is that of the steps: "none", or empty for the
// daemon's default. A failed step is an ErrConfig that names the step and
// quotes the end of its output. When ctx ends, the build ends too.
func (c *Client) Build(ctx context.Context, o image.Order, archive string) error {
	cmd := exec.CommandContext(ctx, c.program, append([]string{"--addr", c.address}, buildArgs(o, archive)...)...)
	cmd.WaitDelay = answerWithin
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := trace{steps: image.Steps{Report: o.Report, Mask: o.Mask}}
	t.readProgress(out)
	err = cmd.Wait()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &fumehood.Error{Op: "build image", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	}
	return t.failure(err)
}
