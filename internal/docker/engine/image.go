package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// Image describes an image of the Engine; the result is false if the Engine has no image of that name. It doesn't ask
// a registry.
func (c *Client) Image(ctx context.Context, ref string) (image.Image, bool, error) {
	res, err := c.api.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return image.Image{}, false, nil
	}
	if err != nil {
		return image.Image{}, false, c.translate(err, "inspect image "+ref)
	}
	img := image.Image{Ref: ref, ID: res.ID, OS: res.Os, Arch: res.Architecture, Tags: tags(res.RepoTags), Size: res.Size}
	img.Created, _ = time.Parse(time.RFC3339Nano, res.Created) // zero if not reported
	if res.Metadata.LastTagTime.After(img.Tagged) {
		img.Tagged = res.Metadata.LastTagTime
	}
	if res.Config != nil {
		img.User, img.WorkingDir = res.Config.User, res.Config.WorkingDir
		img.Labels, _ = c.secret.open(ImageKind, img.Tags, res.Config.Labels)
		img.Entrypoint, img.Command, img.OnBuild = res.Config.Entrypoint, res.Config.Cmd, res.Config.OnBuild
	}
	return img, true, nil
}

// Pull pulls an image. auth is the value of X-Registry-Auth; empty for none. platform is such as "linux/arm64"; empty
// means the daemon's. report receives the progress.
func (c *Client) Pull(ctx context.Context, ref, platform, auth string, report func(provider.Progress)) error {
	opts := client.ImagePullOptions{RegistryAuth: auth}
	if platform != "" {
		p, err := platforms.Parse(platform)
		if err != nil {
			return &fumehood.Error{Op: "pull image " + ref, Class: fumehood.ErrConfig, Err: err}
		}
		opts.Platforms = append(opts.Platforms, p)
	}
	res, err := c.api.ImagePull(ctx, ref, opts)
	if err != nil {
		return c.pullFailure(ctx, ref, err)
	}
	defer res.Close()
	for m, err := range res.JSONMessages(ctx) {
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return c.pullFailure(ctx, ref, err)
		}
		p := provider.Progress{Image: ref, Layer: m.ID, Status: m.Status}
		if m.Progress != nil {
			p.Current, p.Total = m.Progress.Current, m.Progress.Total
		}
		report(p)
	}
	return nil
}

// pullFailure returns the error of a failed pull. It distinguishes a missing image from an unreachable registry.
func (c *Client) pullFailure(ctx context.Context, ref string, err error) error {
	op := "pull image " + ref
	// Some Engines pass on a registry's answer as it is, with the error's code in place of text ("MANIFEST_UNKNOWN").
	// The image's own name must not match.
	text := strings.ReplaceAll(err.Error(), ref, "")
	text += " " + strings.ToLower(strings.ReplaceAll(text, "_", " "))
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case ctx.Err() != nil:
		return c.translate(ctx.Err(), op)
	case client.IsErrConnectionFailed(err):
		return c.unreachable(err)
	case registryIsBusy(text):
		return &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: busy{cause{err}}, Hint: busyHint}
	case has("manifest unknown", "not found: manifest", ": not found", "repository does not exist", "pull access denied", "invalid reference format", "name unknown"):
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: cause{err}, Hint: "check the image's name and tag, and log in if it is private"}
	case has("unauthorized", "authentication required", "denied", "403 "):
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: cause{err}, Hint: "log in to the registry"}
	case has("no such host", "dial tcp", "connection refused", "i/o timeout", "TLS handshake", "network is unreachable", "context deadline exceeded"):
		return &fumehood.Error{
			Op: op, Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the daemon has no image of that name, and cannot reach the registry: %w", cause{err}),
			Hint: "check the image's name, or the daemon's network; `docker images` lists what the daemon has",
		}
	}
	return c.translate(err, op)
}

const busyHint = "the registry is busy or broken; try again later"

// busy is an image.ErrBusy with the Engine's text.
type busy struct{ cause }

func (busy) Is(target error) bool { return target == image.ErrBusy }

// registryBusy matches a registry's 429 and 5xx answers as the Engine passes them on.
var registryBusy = regexp.MustCompile(`(?i)toomanyrequests|too many requests|\b(429|500|502|503|504) [a-z]`)

func registryIsBusy(text string) bool { return registryBusy.MatchString(text) }

// Import creates an image without a name from the tar stream of a root file system, and returns its id. entrypoint
// becomes the image's program; it must not contain quotes.
func (c *Client) Import(ctx context.Context, arch string, content io.Reader, entrypoint string, labels map[string]string) (string, error) {
	const op = "import image"
	changes := []string{fmt.Sprintf("ENTRYPOINT [%q]", entrypoint)}
	for name, value := range c.secret.seal(ImageKind, "", labels) {
		changes = append(changes, fmt.Sprintf("LABEL %s=%q", name, value))
	}
	opts := client.ImageImportOptions{Changes: changes}
	if arch != "" {
		opts.Platform.OS, opts.Platform.Architecture = "linux", arch
	}
	res, err := c.api.ImageImport(ctx, client.ImageImportSource{Source: content, SourceName: "-"}, "", opts)
	if err != nil {
		return "", c.translate(err, op)
	}
	defer res.Close()
	id, err := lastStatus(res)
	if err != nil {
		return "", c.translate(err, op)
	}
	return id, nil
}

// lastStatus returns the last status of the Engine's JSON messages. For an import that is the image's id.
func lastStatus(r io.Reader) (string, error) {
	var id string
	for m, err := range messages(r) {
		if err != nil {
			return "", err
		}
		if m.Error != nil {
			return "", m.Error
		}
		id = m.Status
	}
	if !strings.HasPrefix(id, "sha256:") {
		return "", errors.New("the Engine did not report the image's id")
	}
	return id, nil
}

// Tag adds a name to an image.
func (c *Client) Tag(ctx context.Context, id, ref string) error {
	_, err := c.api.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: ref})
	return c.translate(err, "tag image "+ref)
}
