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
)

// Image is what the Engine says of an image that it has.
type Image struct {
	ID         string
	OS, Arch   string // as Go names them: "linux", "arm64"
	User       string
	WorkingDir string
	Entrypoint []string // what it runs by itself, with Command behind it
	Command    []string
	OnBuild    []string          // what builds on it run first, as lines of a Dockerfile
	Labels     map[string]string // none of ours that isn't proved by the seal
	Tags       []string          // sorted, in the short form in which people write them
	Created    time.Time
	Tagged     time.Time // when it last got a name: was pulled or built; zero where the Engine does not tell
	Size       int64     // bytes, with what it shares with others
}

// Image describes an image that the Engine has; false where it has none of that name. No registry is
// asked.
func (c *Client) Image(ctx context.Context, ref string) (Image, bool, error) {
	res, err := c.api.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return Image{}, false, nil
	}
	if err != nil {
		return Image{}, false, c.translate(err, "inspect image "+ref)
	}
	img := Image{ID: res.ID, OS: res.Os, Arch: res.Architecture, Tags: tags(res.RepoTags), Size: res.Size}
	img.Created, _ = time.Parse(time.RFC3339Nano, res.Created) // zero where it is not told
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

// PullProgress is one step of a pull. Current and Total are bytes of the layer ID; Total is 0 where the
// registry does not tell.
type PullProgress struct {
	Image, ID, Status string
	Current, Total    int64
}

// Pull fetches an image. auth is what X-Registry-Auth wants; empty for none. platform is as "linux/arm64"; empty
// means the daemon's.
func (c *Client) Pull(ctx context.Context, ref, platform, auth string, report func(PullProgress)) error {
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
		p := PullProgress{Image: ref, ID: m.ID, Status: m.Status}
		if m.Progress != nil {
			p.Current, p.Total = m.Progress.Current, m.Progress.Total
		}
		report(p)
	}
	return nil
}

// pullFailure tells an image that is not there from a registry that is not there.
func (c *Client) pullFailure(ctx context.Context, ref string, err error) error {
	op := "pull image " + ref
	// Some Engines hand a registry's answer on as it is, with the error's code in place of its words
	// ("MANIFEST_UNKNOWN"). The image's own name says nothing.
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

// ErrBusy is found in the error of a pull or build to which a registry has answered that it is busy or broken: the
// same may do later.
var ErrBusy = errors.New("the registry is busy or broken")

const busyHint = "the registry is busy or broken; try again later"

// busy is an ErrBusy in the Engine's words.
type busy struct{ cause }

func (busy) Is(target error) bool { return target == ErrBusy }

// registryBusy matches how the Engine hands on a registry's 429 and 5xx.
var registryBusy = regexp.MustCompile(`(?i)toomanyrequests|too many requests|\b(429|500|502|503|504) [a-z]`)

func registryIsBusy(text string) bool { return registryBusy.MatchString(text) }

// Import makes an image without a name from the tar stream of a root file system, and returns its id. It runs entrypoint,
// which has no quotes.
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

// lastStatus reads the Engine's JSON messages; the last status of an import is the image's id.
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
		return "", errors.New("the Engine did not say which image it made")
	}
	return id, nil
}

// Tag gives an image a name.
func (c *Client) Tag(ctx context.Context, id, ref string) error {
	_, err := c.api.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: ref})
	return c.translate(err, "tag image "+ref)
}
