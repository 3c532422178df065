package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

// Provider runs sandboxes in one namespace of a cluster.
type Provider struct {
	opts              Options
	self              owner.ID
	api               *api
	life              box.Life
	starting, running *semaphore.Weighted
	configs           configs
	lives             context.Context // ends when the provider is closed
	end               context.CancelFunc

	mu    sync.Mutex
	pods  *watching // of this process's Pods; nil before the first one
	ended bool
}

var (
	_ fumehood.Provider = (*Provider)(nil)
	_ provider.Opener   = (*Provider)(nil)
	_ provider.Cleaner  = (*Provider)(nil)
)

// New returns a provider. It reads the configuration, and does not contact the cluster. Its errors are ErrConfig.
func New(ctx context.Context, opts Options) (*Provider, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	self, err := owner.Self()
	if err != nil {
		return nil, &fumehood.Error{Op: "identify this process", Class: fumehood.ErrInfrastructure, Err: err}
	}
	a, err := connect(opts)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p := &Provider{
		opts: opts, self: self, api: a,
		starting: semaphore.NewWeighted(int64(opts.MaxStarting)), running: semaphore.NewWeighted(int64(cmp.Or(opts.MaxRunning, math.MaxInt))),
	}
	p.lives, p.end = context.WithCancel(context.WithoutCancel(ctx))
	p.life.Driver, p.life.Log = driver{p}, opts.Logger
	if !opts.NoReaper {
		p.life.Kind, p.life.Job = reaperKind, reaping{Kubeconfig: opts.Kubeconfig, Context: opts.Context, Namespace: opts.Namespace}
	}
	p.life.Claims = claimsKind
	if !opts.NoSweep {
		p.life.Sweep = func(ctx context.Context) ([]provider.Leftover, error) { // only Cleanup removes a kept sandbox
			r := sweep.Removal{AtOnce: box.AtOnce, Among: func(o sweep.Object) bool { return !o.Kept }}
			return r.Run(ctx, provider.CleanupOptions{}, a.finder(self, managed))
		}
	}
	return p, nil
}

// Name returns "kubernetes".
func (p *Provider) Name() string { return "kubernetes" }

// Start starts a sandbox. Of Spec it does not support Mounts, Seccomp, other networks than none and bridge, options of Tmpfs
// but its size, Ports together with Keep, and Limits.PIDs without AllowUnenforcedLimits: these are an ErrUnsupported, as is
// what CheckCompose refuses. Binary has no effect. If the cluster has no room for the Pod within Options.Pending, or a quota
// refuses it, the error is an ErrLimit with the cluster's reason; an image that a node cannot get is an ErrConfig.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	return p.life.Start(ctx, spec)
}

// Open connects to a kept sandbox.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	return p.life.OpenKept(ctx, name)
}

// Kept lists the kept sandboxes of the namespace.
func (p *Provider) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	return p.life.Kept(ctx, names...)
}

// Logs sends the output of the own program of a kept project's service to out. Its guest keeps the last MiB of each of the
// two outputs, in which Tail counts lines.
func (p *Provider) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	return p.life.Logs(ctx, name, service, opts, out)
}

// Renew postpones the expiry of a kept sandbox.
func (p *Provider) Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error) {
	return p.life.Renew(ctx, name, ttl)
}

// Close closes the sandboxes that are still open. Afterwards none can be started.
func (p *Provider) Close(ctx context.Context) error {
	err := p.life.Open.Close(context.WithoutCancel(ctx))
	p.life.Leave(err == nil)
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.pods != nil {
		p.pods.end()
	}
	return err
}

// watching returns the watch of this process's Pods, and starts it if necessary.
func (p *Provider) watching(ctx context.Context) *watching {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = newWatching(ctx, p.api, labelOwner+"="+ownerLabel(p.self), "", p.opts.Logger)
		if p.ended {
			p.pods.end()
		}
	}
	return p.pods
}

// make creates a Pod. If the answer is lost, the Pod that has the same random annotation is it.
func (p *Provider) make(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	p.watching(ctx) // it then sees everything
	pod.Annotations[annotationCall] = rand.Text()
	made, err := p.api.create(context.WithoutCancel(ctx), pod)
	if err == nil {
		return made, nil
	}
	there, gerr := p.api.get(context.WithoutCancel(ctx), pod.Name)
	if gerr == nil && there.Annotations[annotationCall] == pod.Annotations[annotationCall] {
		return there, nil
	}
	return nil, err
}

// driver makes the sandboxes of a provider.
type driver struct{ *Provider }

var _ box.Driver = driver{}

// Plan checks a spec.
func (p driver) Plan(_ context.Context, spec fumehood.Spec) (box.Body, error) {
	if spec.Compose == nil {
		spec.Image = cmp.Or(spec.Images[serviceName], spec.Image, p.opts.DefaultImage)
	}
	unenforced, err := p.checkSpec(spec)
	if err != nil {
		return nil, err
	}
	sb := &sandbox{Sandbox: box.Sandbox{Spec: spec}, p: p.Provider}
	sb.About.Unenforced = unenforced
	if spec.Keep {
		sb.Key = box.NewKey()
	}
	return sb, nil
}

// Find finds kept sandboxes by their label.
func (p driver) Find(ctx context.Context, name string, _ bool) (found []box.Found, _ error) {
	fields := ""
	if name != "" {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" { // no sandbox has such a name
			return nil, nil
		}
		fields = "metadata.name=" + podName(name)
	}
	pods, _, err := p.api.list(ctx, managed+","+labelKept+"=true", fields)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if f, ok := p.describe(&pods[i]); ok {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b box.Found) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// describe describes a kept sandbox. It returns false if the Pod's marks are not valid.
func (p driver) describe(pod *corev1.Pod) (box.Found, bool) {
	marks := marksOf(pod)
	var services []keptService
	if podName(marks[owner.LabelSandbox]) != pod.Name || json.Unmarshal([]byte(pod.Annotations[annotationServices]), &services) != nil || len(services) == 0 {
		return box.Found{}, false
	}
	f := box.Found{KeptSandbox: provider.KeptSandbox{
		Info: marks.Info(p.Name()), Created: pod.CreationTimestamp.Time, Expires: marks.Expires(), States: map[string]string{},
	}}
	images := map[string]string{}
	for _, c := range pod.Spec.Containers {
		images[c.Name] = c.Image
	}
	f.Services = nil
	for _, s := range services {
		f.Services = append(f.Services, fumehood.ServiceInfo{Name: s.Name, Image: images[s.Container], Dir: s.Dir, User: s.User, Container: pod.Name})
		f.Programs = append(f.Programs, s.Program)
		f.States[s.Name] = "ended"
		if runs(pod, s.Container) {
			f.States[s.Name] = "running"
		}
	}
	connect := func(ctx context.Context) *sandbox {
		spec := fumehood.Spec{Name: marks[owner.LabelSandbox], Keep: true}
		sb := &sandbox{Sandbox: box.Sandbox{Spec: spec, About: marks.Info(p.Name()), Key: marks.Key()}, p: p.Provider, pod: pod}
		sb.own = newWatching(ctx, p.api, "", "metadata.name="+pod.Name, p.opts.Logger)
		sb.own.record(pod)
		for i, s := range services {
			sb.add(sb.own, f.Services[i], s.Container, s.Args, s.Term)
		}
		return sb
	}
	f.Open = func(ctx context.Context) (box.Body, error) {
		if d := deathOf(pod, services[0].Container); d.Err != nil {
			return nil, d.Err
		}
		return connect(ctx), nil
	}
	f.Logs = func(ctx context.Context, i int, opts provider.LogOptions, out provider.Sink) error {
		sb := connect(ctx)
		defer sb.Leave()
		return sb.Services[i].Output(ctx, opts, out)
	}
	f.Extend = func(ctx context.Context, until time.Time) error {
		marks[owner.LabelExpires] = until.UTC().Format(time.RFC3339)
		text, err := json.Marshal(marks)
		if err != nil {
			return err
		}
		return p.api.patch(ctx, pod.Name, map[string]any{"metadata": map[string]any{
			"uid": pod.UID, "annotations": map[string]string{annotationMarks: string(text)},
		}})
	}
	return f, true
}
