package engine

import (
	"cmp"
	"context"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood/internal/owner"
)

// Guard wraps the Engine's client. It gives every call a deadline, and retries the calls that calls.go allows to be
// retried. Retries are logged.
//
// A canceled context prevents the creation of an object, but never interrupts it: the Engine would go on, and the
// object would be unknown to us. Objects with Fumehood's labels are sealed when they are created.
//
// Containers are created with two changes. A guest's standard input is closed when the connection of the host that
// attached to it ends, so that the guest notices at once when its host dies; Compose has no key for that. Containers
// also get a seccomp profile, because every container is created through this client.
func Guard(api client.APIClient, opts GuardOptions) client.APIClient {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &guarded{APIClient: api, log: opts.Logger, seccomp: opts.Seccomp, profiles: opts.Profiles, unheld: opts.Unheld, latency: opts.Latency, speedup: opts.Speedup, secret: opts.Secret, met: new(atomic.Bool)}
}

// GuardOptions configures Guard. The zero value disables logging and uses the timeouts of calls.go.
type GuardOptions struct {
	Logger *slog.Logger
	// Latency receives the durations of calls that the Engine answers from memory. It is called concurrently.
	Latency func(time.Duration)
	// Seccomp is the seccomp profile, as JSON, of containers that are not privileged and are created without a
	// profile. Empty means the Engine's default.
	Seccomp string
	// Profiles are those of containers with owner.LabelSeccomp, by its value.
	Profiles map[string]string
	// Unheld receives the labels of a new container and the warnings about limits that the Engine does not enforce.
	// Its error becomes the error of the creation, although the container exists. Nil ignores the warnings.
	Unheld  func(labels map[string]string, warnings []string) error
	Speedup Speedup
	// Secret is the key of the seals of created objects.
	Secret Secret
}

// Ping checks that the Engine answers.
func (g *guarded) Ping(ctx context.Context, opts client.PingOptions) (client.PingResult, error) {
	return ask(ctx, g, callPing, g.APIClient.Ping, opts)
}

// ServerVersion returns the Engine's version.
func (g *guarded) ServerVersion(ctx context.Context, opts client.ServerVersionOptions) (client.ServerVersionResult, error) {
	return ask(ctx, g, callVersion, g.APIClient.ServerVersion, opts)
}

// Info returns the Engine's configuration.
func (g *guarded) Info(ctx context.Context, opts client.InfoOptions) (client.SystemInfoResult, error) {
	return ask(ctx, g, callInfo, g.APIClient.Info, opts)
}

// Events follows events. The timeout covers only the Engine's answer; the stream may be silent.
func (g *guarded) Events(ctx context.Context, opts client.EventsListOptions) client.EventsResult {
	ctx, v := newWatchdog(ctx, &silent{limit: g.speedup.Of(callEvents.silence)})
	res := g.APIClient.Events(ctx, opts) // returns after the Engine has answered
	v.rest()                             // its resources are released at the end of ctx
	return res
}

// ContainerList lists containers.
func (g *guarded) ContainerList(ctx context.Context, opts client.ContainerListOptions) (client.ContainerListResult, error) {
	return ask(ctx, g, callContainerList, g.APIClient.ContainerList, opts)
}

// ContainerTop lists the processes of a container.
func (g *guarded) ContainerTop(ctx context.Context, id string, opts client.ContainerTopOptions) (client.ContainerTopResult, error) {
	return about(ctx, g, callContainerTop, g.APIClient.ContainerTop, id, opts)
}

// ContainerInspect describes a container.
func (g *guarded) ContainerInspect(ctx context.Context, id string, opts client.ContainerInspectOptions) (client.ContainerInspectResult, error) {
	return about(ctx, g, callContainerInspect, g.APIClient.ContainerInspect, id, opts)
}

// ContainerCreate creates a container. After an unclear failure it adopts an existing container of that name if that
// has our labels and was never started.
func (g *guarded) ContainerCreate(ctx context.Context, opts client.ContainerCreateOptions) (client.ContainerCreateResult, error) {
	var labels map[string]string
	if opts.Config != nil {
		labels = g.secret.seal(Container, opts.Name, opts.Config.Labels)
		opts.Config.Labels = labels
		if labels[owner.LabelMain] == owner.MainGuest {
			opts.Config.StdinOnce = true
		}
	}
	opts.HostConfig = g.withProfile(opts.HostConfig, labels)
	create := func(ctx context.Context) (client.ContainerCreateResult, error) {
		return g.APIClient.ContainerCreate(ctx, opts)
	}
	find := func(ctx context.Context) (found client.ContainerCreateResult, is bool, err error) {
		res, err := g.ContainerInspect(ctx, opts.Name, client.ContainerInspectOptions{})
		c := res.Container
		is = err == nil && c.State != nil && c.State.Status == container.StateCreated && c.Config != nil && sameOwn(labels, c.Config.Labels)
		return client.ContainerCreateResult{ID: c.ID, Warnings: droppedWarnings(opts.HostConfig, c.HostConfig)}, is, err
	}
	res, err := createOrAdopt(ctx, g, callContainerCreate, opts.Name, labels, create, find)
	if warnings := limitWarnings(res.Warnings); err == nil && len(warnings) > 0 && g.unheld != nil {
		err = g.unheld(labels, warnings)
	}
	return res, err
}

// withProfile returns the configuration of a container, which gets the labels, with our seccomp profile. A profile that is
// set already is kept.
func (g *guarded) withProfile(host *container.HostConfig, labels map[string]string) *container.HostConfig {
	var with container.HostConfig
	if host != nil {
		with = *host
	}
	own := slices.ContainsFunc(with.SecurityOpt, func(opt string) bool {
		return strings.HasPrefix(opt, "seccomp=") || strings.HasPrefix(opt, "seccomp:")
	})
	profile := cmp.Or(g.profiles[labels[owner.LabelSeccomp]], g.seccomp)
	if profile == "" || own || with.Privileged {
		return host
	}
	with.SecurityOpt = append(slices.Clone(with.SecurityOpt), "seccomp="+profile)
	return &with
}

// createOrAdopt creates an object by name. After an unclear failure it looks for an object of that name and returns it if
// find accepts it. Without a name or a label of ours, the call is not retried.
func createOrAdopt[T any](ctx context.Context, g *guarded, c call, name string, labels map[string]string,
	create func(context.Context) (T, error), find func(context.Context) (T, bool, error),
) (T, error) {
	if name == "" || labels[owner.LabelOwner] == "" {
		c.again = never
	}
	open := false // whether an earlier attempt may have created it
	return do(ctx, g, c, name, func(within context.Context) (T, error) {
		res, err := create(within)
		if err == nil || c.again == never {
			return res, err
		}
		now := isUnclear(err) || within.Err() != nil
		if !now && (!open || !errdefs.IsConflict(err)) { // the conflict may be with our own object
			return res, err
		}
		open = true
		found, is, ferr := find(context.WithoutCancel(ctx))
		if ferr != nil || !is {
			return res, err
		}
		g.log.Info("object exists although its creation failed", "call", c.name, "object", name)
		return found, nil
	})
}

// sameOwn reports whether an object has all of Fumehood's labels that it was created with.
func sameOwn(want, have map[string]string) bool {
	own := func(all map[string]string) map[string]string {
		all = maps.Clone(all)
		maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, owner.LabelPrefix) })
		return all
	}
	// A container also has the labels of its image, so have may contain more.
	for name, value := range own(want) {
		if have[name] != value {
			return false
		}
	}
	return true
}

// ContainerStart starts a container.
func (g *guarded) ContainerStart(ctx context.Context, id string, opts client.ContainerStartOptions) (client.ContainerStartResult, error) {
	return about(ctx, g, callContainerStart, g.APIClient.ContainerStart, id, opts)
}

// ContainerStop stops a container.
func (g *guarded) ContainerStop(ctx context.Context, id string, opts client.ContainerStopOptions) (client.ContainerStopResult, error) {
	return about(ctx, g, callContainerStop, g.APIClient.ContainerStop, id, opts)
}

// ContainerPause freezes the processes of a container.
func (g *guarded) ContainerPause(ctx context.Context, id string, opts client.ContainerPauseOptions) (client.ContainerPauseResult, error) {
	return about(ctx, g, callContainerPause, g.APIClient.ContainerPause, id, opts)
}

// ContainerUnpause resumes a paused container.
func (g *guarded) ContainerUnpause(ctx context.Context, id string, opts client.ContainerUnpauseOptions) (client.ContainerUnpauseResult, error) {
	return about(ctx, g, callContainerUnpause, g.APIClient.ContainerUnpause, id, opts)
}

// ContainerRemove removes a container.
func (g *guarded) ContainerRemove(ctx context.Context, id string, opts client.ContainerRemoveOptions) (client.ContainerRemoveResult, error) {
	return about(ctx, g, callContainerRemove, g.APIClient.ContainerRemove, id, opts)
}

// ContainerLogs reads a container's log. A log that is followed may be silent.
func (g *guarded) ContainerLogs(ctx context.Context, id string, opts client.ContainerLogsOptions) (client.ContainerLogsResult, error) {
	res, v, err := begin(ctx, g, callContainerLogs, id, func(ctx context.Context, _ *watchdog) (client.ContainerLogsResult, error) {
		return g.APIClient.ContainerLogs(ctx, id, opts)
	})
	if err != nil {
		return nil, err
	}
	return body{res, v, opts.Follow}, nil
}

// ContainerStats reads the counters of a container.
func (g *guarded) ContainerStats(ctx context.Context, id string, opts client.ContainerStatsOptions) (client.ContainerStatsResult, error) {
	res, v, err := begin(ctx, g, callContainerStats, id, func(ctx context.Context, _ *watchdog) (client.ContainerStatsResult, error) {
		return g.APIClient.ContainerStats(ctx, id, opts)
	})
	if err != nil {
		return client.ContainerStatsResult{}, err
	}
	return client.ContainerStatsResult{Body: body{res.Body, v, opts.Stream}}, nil
}

// ContainerAttach connects to a container's main process.
func (g *guarded) ContainerAttach(ctx context.Context, id string, opts client.ContainerAttachOptions) (client.ContainerAttachResult, error) {
	return hijack(ctx, g, callContainerAttach, id, func(ctx context.Context) (client.ContainerAttachResult, error) {
		return g.APIClient.ContainerAttach(ctx, id, opts)
	}, func(r client.ContainerAttachResult) { r.Close() })
}

// ContainerStatPath describes a file.
func (g *guarded) ContainerStatPath(ctx context.Context, id string, opts client.ContainerStatPathOptions) (client.ContainerStatPathResult, error) {
	return about(ctx, g, callContainerStat, g.APIClient.ContainerStatPath, id, opts)
}

// CopyFromContainer reads files.
func (g *guarded) CopyFromContainer(ctx context.Context, id string, opts client.CopyFromContainerOptions) (client.CopyFromContainerResult, error) {
	res, v, err := begin(ctx, g, callCopyFrom, id, func(ctx context.Context, _ *watchdog) (client.CopyFromContainerResult, error) {
		return g.APIClient.CopyFromContainer(ctx, id, opts)
	})
	if err == nil {
		res.Content = body{res.Content, v, false}
	}
	return res, err
}

// CopyToContainer writes files. Their owners are the numbers in the archive: where the SDK asks for that, it sets an option
// with which the Engine takes the container's user instead.
func (g *guarded) CopyToContainer(ctx context.Context, id string, opts client.CopyToContainerOptions) (client.CopyToContainerResult, error) {
	res, v, err := begin(ctx, g, callCopyTo, id, func(ctx context.Context, v *watchdog) (client.CopyToContainerResult, error) {
		opts.Content, opts.CopyUIDGID = sending{opts.Content, v}, false
		return g.APIClient.CopyToContainer(ctx, id, opts)
	})
	if v != nil {
		v.end()
	}
	return res, err
}

// ExecCreate creates an exec.
func (g *guarded) ExecCreate(ctx context.Context, id string, opts client.ExecCreateOptions) (client.ExecCreateResult, error) {
	return about(ctx, g, callExecCreate, g.APIClient.ExecCreate, id, opts)
}

// ExecInspect describes an exec.
func (g *guarded) ExecInspect(ctx context.Context, id string, opts client.ExecInspectOptions) (client.ExecInspectResult, error) {
	return about(ctx, g, callExecInspect, g.APIClient.ExecInspect, id, opts)
}

// ExecResize sets the size of an exec's terminal.
func (g *guarded) ExecResize(ctx context.Context, id string, opts client.ExecResizeOptions) (client.ExecResizeResult, error) {
	return about(ctx, g, callExecResize, g.APIClient.ExecResize, id, opts)
}

// ExecAttach starts an exec and connects to it.
func (g *guarded) ExecAttach(ctx context.Context, id string, opts client.ExecAttachOptions) (client.ExecAttachResult, error) {
	return hijack(ctx, g, callExecAttach, id, func(ctx context.Context) (client.ExecAttachResult, error) {
		return g.APIClient.ExecAttach(ctx, id, opts)
	}, func(r client.ExecAttachResult) { r.Close() })
}

// ImageInspect describes an image.
func (g *guarded) ImageInspect(ctx context.Context, ref string, opts ...client.ImageInspectOption) (client.ImageInspectResult, error) {
	return do(ctx, g, callImageInspect, ref, func(ctx context.Context) (client.ImageInspectResult, error) {
		return g.APIClient.ImageInspect(ctx, ref, opts...)
	})
}

// ImageList lists images.
func (g *guarded) ImageList(ctx context.Context, opts client.ImageListOptions) (client.ImageListResult, error) {
	return ask(ctx, g, callImageList, g.APIClient.ImageList, opts)
}

// ImagePull pulls an image.
func (g *guarded) ImagePull(ctx context.Context, ref string, opts client.ImagePullOptions) (client.ImagePullResponse, error) {
	res, v, err := begin(ctx, g, callImagePull, ref, func(ctx context.Context, _ *watchdog) (client.ImagePullResponse, error) {
		return g.APIClient.ImagePull(ctx, ref, opts)
	})
	if err != nil {
		return nil, err
	}
	return pulling{res, body{res, v, false}}, nil
}

// pulling is the answer to a pull.
type pulling struct {
	client.ImagePullResponse
	body body
}

func (p pulling) Read(b []byte) (int, error) { return p.body.Read(b) }
func (p pulling) Close() error               { return p.body.Close() }

// JSONMessages yields the messages. They end with the context of ImagePull; its own context is ignored.
func (p pulling) JSONMessages(context.Context) iter.Seq2[jsonstream.Message, error] {
	return messages(p.body)
}

// ImageImport creates an image from a file system.
func (g *guarded) ImageImport(ctx context.Context, source client.ImageImportSource, ref string, opts client.ImageImportOptions) (client.ImageImportResult, error) {
	res, v, err := begin(ctx, g, callImageImport, ref, func(ctx context.Context, v *watchdog) (client.ImageImportResult, error) {
		if source.Source != nil {
			source.Source = sending{source.Source, v}
		}
		return g.APIClient.ImageImport(ctx, source, ref, opts)
	})
	if err != nil {
		return nil, err
	}
	return body{res, v, false}, nil
}

// ImageBuild builds an image.
func (g *guarded) ImageBuild(ctx context.Context, content io.Reader, opts client.ImageBuildOptions) (client.ImageBuildResult, error) {
	res, v, err := begin(ctx, g, callImageBuild, strings.Join(opts.Tags, " "), func(ctx context.Context, v *watchdog) (client.ImageBuildResult, error) {
		if content != nil {
			content = sending{content, v}
		}
		return g.APIClient.ImageBuild(ctx, content, opts)
	})
	if err == nil {
		res.Body = body{res.Body, v, false}
	}
	return res, err
}

// ImageTag tags an image.
func (g *guarded) ImageTag(ctx context.Context, opts client.ImageTagOptions) (client.ImageTagResult, error) {
	return do(ctx, g, callImageTag, opts.Target, func(ctx context.Context) (client.ImageTagResult, error) {
		return g.APIClient.ImageTag(ctx, opts)
	})
}

// ImageRemove removes an image.
func (g *guarded) ImageRemove(ctx context.Context, ref string, opts client.ImageRemoveOptions) (client.ImageRemoveResult, error) {
	return about(ctx, g, callImageRemove, g.APIClient.ImageRemove, ref, opts)
}

// DialHijack opens a connection with another protocol.
func (g *guarded) DialHijack(ctx context.Context, url, proto string, meta map[string][]string) (net.Conn, error) {
	return hijack(ctx, g, callSession, url, func(ctx context.Context) (net.Conn, error) {
		return g.APIClient.DialHijack(ctx, url, proto, meta)
	}, func(c net.Conn) { _ = c.Close() }) // no one uses it any more
}
