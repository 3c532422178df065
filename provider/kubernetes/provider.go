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

// Start starts a sandbox with one service, "default". Of Spec it supports Name, Image, Env, User, Dir, Runtime, Limits,
// ShmSize, Keep, TTL, Labels, ConfigFile, Journal and Logger. Binary has no effect. If any other field is set, or
// Limits.PIDs without AllowUnenforcedLimits, the error is an ErrUnsupported. If the cluster has no room for the Pod within
// Options.Pending, or a quota refuses it, it is an ErrLimit with the cluster's reason; an image that a node cannot get is
// an ErrConfig.
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

// Logs is an ErrUnsupported, since no service has a program of its own.
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
	spec.Image = cmp.Or(spec.Images[serviceName], spec.Image, p.opts.DefaultImage)
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
	if podName(marks[owner.LabelSandbox]) != pod.Name || len(pod.Spec.Containers) == 0 {
		return box.Found{}, false
	}
	about, state := marks.Info(p.Name()), "ended"
	if runs(pod) {
		state = "running"
	}
	c := pod.Spec.Containers[0]
	dir := cmp.Or(c.WorkingDir, pod.Annotations[annotationDir])
	f := box.Found{Programs: []bool{false}}
	f.KeptSandbox = provider.KeptSandbox{
		Info: about, Created: pod.CreationTimestamp.Time, Expires: marks.Expires(), States: map[string]string{serviceName: state},
	}
	f.Services = []fumehood.ServiceInfo{{Name: serviceName, Image: c.Image, Dir: dir, User: userOf(c), Container: pod.Name}}
	f.Open = func(ctx context.Context) (box.Body, error) {
		if d := deathOf(pod); d.Err != nil {
			return nil, d.Err
		}
		spec := fumehood.Spec{Name: marks[owner.LabelSandbox], Keep: true, Dir: dir, User: userOf(c), Env: map[string]string{}}
		for _, v := range c.Env {
			spec.Env[v.Name] = strings.ReplaceAll(v.Value, "$$", "$")
		}
		w := newWatching(ctx, p.api, "", "metadata.name="+pod.Name, p.opts.Logger)
		sb := &sandbox{Sandbox: box.Sandbox{Spec: spec, About: about, Key: marks.Key()}, p: p.Provider, pod: pod, own: w}
		sb.connect(w)
		return sb, nil
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

// userOf returns the user of a sandbox's container; empty means the image's.
func userOf(c corev1.Container) string {
	for _, arg := range c.Command {
		if user, ok := strings.CutPrefix(arg, "--as="); ok {
			return user
		}
	}
	return ""
}
