package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// unsupportedError returns an ErrUnsupported for a feature that a Pod cannot have.
func unsupportedError(feature, hint string) error {
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the kubernetes provider cannot " + feature), Hint: hint,
	}
}

// checkSpec returns an error for what the provider cannot do.
func (p *Provider) checkSpec(spec fumehood.Spec) (unenforced []string, err error) {
	const elsewhere = "use the docker or the native provider"
	switch {
	case p.opts.GuestImage == "":
		return nil, &fumehood.Error{
			Op: "start sandbox", Class: fumehood.ErrConfig, Err: errors.New("no image of the guest is given"),
			Hint: "push one with `fumehood image guest --push REF`, and give its name: docs/howto/kubernetes.md",
		}
	case spec.Network.Mode != fumehood.NetworkBridge && !spec.Network.IsNone():
		return nil, unsupportedError(fmt.Sprintf("give a sandbox the network %q", spec.Network.Mode), "choose none or "+fumehood.NetworkBridge)
	case len(spec.Mounts) > 0:
		return nil, unsupportedError("mount paths of this machine, which the nodes do not have", "write the files after the start")
	case spec.Keep && len(spec.Ports) > 0:
		return nil, unsupportedError("publish ports of kept sandboxes", "forward them when they are needed")
	case spec.Seccomp != "":
		return nil, unsupportedError("use the seccomp profile "+spec.Seccomp, elsewhere)
	case spec.Runtime != "" && strings.ContainsAny(spec.Runtime, "/_ "):
		return nil, unsupportedError(fmt.Sprintf("use the runtime %q: it is no name of a RuntimeClass", spec.Runtime), "name one of the cluster")
	}
	for _, text := range spec.Tmpfs {
		if t, _ := fumehood.ParseTmpfs(text); !compose.OnlySize(t) { // it is valid
			return nil, unsupportedError(fmt.Sprintf("mount the tmpfs %q: only a size can be chosen", text), "give a size in bytes, or none")
		}
	}
	if pids := spec.Limits.PIDs; pids > 0 && !p.opts.AllowUnenforcedLimits {
		return nil, unsupportedError(fmt.Sprintf("limit a sandbox to %d processes: the kubelet's podPidsLimit applies", pids), "leave the limit at its default, or allow limits that are not enforced")
	}
	if spec.Limits.PIDs != fumehood.NoLimit {
		unenforced = append(unenforced, "pids")
	}
	return unenforced, nil
}

// runner is this provider for the checks of a project.
func (p *Provider) runner(spec fumehood.Spec) compose.Runner {
	return compose.Runner{Name: p.Name(), Pod: true, AllowUnenforced: p.opts.AllowUnenforcedLimits, Prebuilt: spec.Compose.Prebuilt}
}

// CheckCompose returns the error with which Start would refuse the Compose project of a spec: an ErrConfig, or an
// ErrUnsupported that names file and line. It asks no cluster.
func CheckCompose(ctx context.Context, opts Options, spec fumehood.Spec) error {
	p := Provider{opts: opts}
	_, err := p.loadProject(ctx, spec, nil)
	return err
}

// loadProject loads and checks the project of a spec.
func (p *Provider) loadProject(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (*compose.Project, error) {
	project, err := box.LoadProject(ctx, spec, rec)
	if err != nil {
		return nil, err
	}
	return project, project.CheckPod(p.runner(spec), spec.Keep)
}

// members returns the services of a sandbox, the default one first.
func (p *Provider) members(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) ([]member, error) {
	if spec.Compose == nil {
		all, _, err := compose.FromSpec(spec).Members(spec, map[string]compose.Image{serviceName: {}})
		if err != nil {
			return nil, err
		}
		return []member{{Member: all[0], container: serviceName, image: spec.Image}}, nil
	}
	project, err := p.loadProject(ctx, spec, rec)
	if err != nil {
		return nil, err
	}
	images, sources := map[string]compose.Image{}, map[string]image.Source{}
	var unknown []error
	for _, s := range project.Sources() {
		s.Image = cmp.Or(spec.Images[s.Service], s.Image)
		sources[s.Service] = s
		img, err := p.configs.get(ctx, s.Image)
		switch {
		case err == nil:
		case project.HasEntrypoint(s.Service):
			p.opts.Logger.Warn("the image's health check is not known", "service", s.Service, "image", s.Image, "error", err)
		default:
			unknown = append(unknown, &fumehood.Error{
				Op: "start sandbox", Service: s.Service, Class: fumehood.ErrConfig, Err: fmt.Errorf("the program of image %s is not known: %w", s.Image, err),
				Hint: "name the service's entrypoint in the file, or let this machine reach the registry",
			})
		}
		images[s.Service] = img
	}
	if len(unknown) > 0 {
		return nil, errors.Join(unknown...)
	}
	all, changes, err := project.Members(spec, images)
	if err != nil {
		return nil, err
	}
	p.life.LogFiles(spec, project)
	p.life.LogChanges(spec, changes)
	found, names := make([]member, len(all)), containerNames(all)
	for i, m := range all {
		m.Shm = cmp.Or(m.Shm, defaultShm) // the containers of a Pod share one otherwise
		found[i] = member{m, names[i], sources[m.Name].Image, sources[m.Name].Pull}
	}
	return found, nil
}

// defaultShm is the size of a service's own /dev/shm in bytes, as in Docker.
const defaultShm = 64 << 20

// member is a service of a sandbox: a container of the Pod.
type member struct {
	compose.Member
	container string // its name
	image     string // its reference
	pull      string // a pull policy of package image, or empty
}

// containerNames returns names for the containers of services, which Kubernetes allows.
func containerNames(all []compose.Member) (names []string) {
	for i, m := range all {
		name := strings.Trim(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(m.Name)), "-")
		if name == "" || len(name) > 50 || name == initName || slices.Contains(names, name) {
			name = fmt.Sprintf("service-%d", i)
		}
		names = append(names, name)
	}
	return names
}

// pullPolicies are the kubelet's names of the policies of package image.
var pullPolicies = map[string]string{image.PullNever: "Never"}
