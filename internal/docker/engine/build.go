package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/platforms"
	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/image"
)

// cpuPeriod is the kernel's default period of CPU quotas in microseconds.
const cpuPeriod = 100_000

// Build builds an image on the Engine, and returns its id. content is the context, a tar stream. The labels are sealed for
// the first tag. Only BuildKit has secrets, and only the Engine's own builder limits memory and CPUs. The Engine removes
// the steps' containers in any case. If ctx ends, it aborts the build.
func (c *Client) Build(ctx context.Context, o image.Order, content io.Reader) (string, error) {
	op := "build image"
	if len(o.Tags) > 0 {
		op += " " + o.Tags[0]
	}
	o.Labels = c.secret.seal(ImageKind, firstOr(o.Tags, ""), o.Labels)
	opts, err := orderOptions(o)
	if err != nil {
		return "", &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	switch {
	case o.BuildKit:
		opts.Version = build.BuilderBuildKit
		end, err := c.serve(ctx, o, &content, &opts)
		if err != nil {
			return "", c.translate(err, op)
		}
		defer end()
	case o.Inline != "":
		opts.Dockerfile = image.Hidden
		id := ""
		err := archive.Pipe(func(w io.Writer) error { return image.Hide(w, content, o.Inline) }, func(r io.Reader) error {
			id, err = c.build(ctx, op, o, r, opts)
			return err
		})
		return id, err
	}
	return c.build(ctx, op, o, content, opts)
}

// build is Build with the context and the options for the Engine.
func (c *Client) build(ctx context.Context, op string, o image.Order, content io.Reader, opts client.ImageBuildOptions) (string, error) {
	res, err := c.api.ImageBuild(ctx, content, opts)
	if err != nil {
		return "", c.translate(err, op)
	}
	defer res.Body.Close()
	out := &buildOutput{steps: image.Steps{Report: o.Report, Mask: o.Mask}}
	for m, err := range messages(res.Body) {
		if err == nil && m.Error != nil {
			return "", c.buildFailure(ctx, op, m.Error, m.Error.Code, out)
		}
		if err != nil {
			return "", c.translate(err, op)
		}
		if m.Aux != nil && m.ID == traceID {
			out.trace(*m.Aux)
			continue
		}
		out.take(m.Stream)
		if m.Aux != nil {
			_ = json.Unmarshal(*m.Aux, &out.made) // other kinds of messages have no ID
		}
	}
	switch {
	case ctx.Err() != nil:
		return "", c.translate(ctx.Err(), op)
	case out.made.ID == "":
		return "", &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: errors.New("the Engine did not report the image's id")}
	}
	return out.made.ID, nil
}

// orderOptions returns the options of an order for the Engine.
func orderOptions(o image.Order) (client.ImageBuildOptions, error) {
	opts := client.ImageBuildOptions{
		Tags: o.Tags, Dockerfile: o.Dockerfile, BuildArgs: map[string]*string{}, Labels: o.Labels, NetworkMode: o.Network,
		Memory: o.Memory, MemorySwap: o.Memory, CPUPeriod: period(o.CPUs), CPUQuota: int64(o.CPUs * cpuPeriod),
		Target: o.Target, NoCache: o.NoCache, CacheFrom: o.CacheFrom, ExtraHosts: o.ExtraHosts, ShmSize: o.ShmSize,
		Remove: true, ForceRemove: true,
	}
	for k, v := range o.Args {
		opts.BuildArgs[k] = &v
	}
	for _, u := range o.Ulimits {
		opts.Ulimits = append(opts.Ulimits, &container.Ulimit{Name: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	if o.Platform != "" {
		p, err := platforms.Parse(o.Platform)
		if err != nil {
			return opts, err
		}
		opts.Platforms = append(opts.Platforms, p)
	}
	return opts, nil
}

func period(cpus float64) int64 {
	if cpus == 0 {
		return 0
	}
	return cpuPeriod
}

// buildOutput parses the builder's output: the steps, and what they print.
type buildOutput struct {
	steps   image.Steps
	current string // the step of the Engine's own builder: "2/3"
	made    struct{ ID string }
}

// take handles a message of the Engine's own builder.
func (o *buildOutput) take(text string) {
	if rest, ok := strings.CutPrefix(text, "Step "); ok {
		if at, instruction, ok := strings.Cut(rest, " : "); ok {
			o.current = at
			o.steps.Step(at, "step "+at+", "+instruction, true, "")
			return
		}
	}
	if strings.HasPrefix(text, " ---> ") || strings.HasPrefix(text, "Removing intermediate container ") {
		return // the builder's own messages
	}
	o.steps.Print(o.current, text)
}

// buildFailure returns the error of a build that failed in a step. code is the exit code of the step's program, 0 if
// none has run.
func (c *Client) buildFailure(ctx context.Context, op string, err error, code int, out *buildOutput) error {
	says := cause{err}.Error()
	code = cmp.Or(code, image.ExitCode(says))
	class := fumehood.ErrConfig
	switch {
	case ctx.Err() != nil:
		return c.translate(ctx.Err(), op)
	case strings.Contains(says, "no space left on device"):
		class = fumehood.ErrInfrastructure
	case code == 0 && registryIsBusy(says): // of an image in FROM
		return &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: busy{cause{err}}, Hint: busyHint}
	}
	if out.current != "" {
		out.steps.Step(out.current, "", true, says)
	}
	return &fumehood.Error{Op: op, Class: class, Err: errors.New(out.steps.Describe(says, code))}
}

// tags returns the names in the Engine's answer, sorted. Old Engines list "<none>:<none>" for an image without a
// name.
func tags(names []string) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "<none>") })
	slices.Sort(names)
	return names
}

// Images lists the images with a label, "name" or "name=value", newest first. used has the ids of all images that
// containers use, with and without the label. An untagged image that is only the base of another one is not listed.
func (c *Client) Images(ctx context.Context, label string) (images []image.Image, used map[string]bool, err error) {
	found, err := c.api.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		return nil, nil, c.translate(err, "list images")
	}
	containers, err := c.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, nil, c.translate(err, "list containers")
	}
	for _, o := range found.Items {
		img := image.Image{ID: o.ID, Tags: tags(o.RepoTags), Created: time.Unix(o.Created, 0), Size: o.Size}
		img.Labels, _ = c.secret.open(ImageKind, img.Tags, o.Labels)
		images = append(images, img)
	}
	used = map[string]bool{}
	for _, o := range containers.Items {
		used[o.ImageID] = true
	}
	slices.SortFunc(images, func(a, b image.Image) int { return b.Created.Compare(a.Created) })
	return images, used, nil
}

// Untag removes a name from an image. It removes the image too if that was its last name, or if name is its id. An
// image that a container uses is an ErrUnavailable.
func (c *Client) Untag(ctx context.Context, name string) error {
	_, err := c.api.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true})
	return c.removalError(err, "remove image "+name)
}
