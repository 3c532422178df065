package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// runtimes returns the daemon's container runtimes.
func (p *Provider) runtimes(ctx context.Context) (compose.Runtimes, error) {
	info, err := p.info(ctx)
	if err != nil {
		return compose.Runtimes{}, err
	}
	return runtimesOf(info), nil
}

// cachedRuntimes returns the daemon's container runtimes, or the zero value if the daemon was not asked yet.
func (p *Provider) cachedRuntimes() compose.Runtimes {
	if known := p.cachedInfo(); known != nil {
		return runtimesOf(*known)
	}
	return compose.Runtimes{}
}

func runtimesOf(info engine.Info) compose.Runtimes {
	return compose.Runtimes{Default: info.Runtimes[0], Programs: info.RuntimePrograms}
}

// chooseRuntime returns the runtime of a sandbox: that of the spec, or that of the options if the spec's isolates less.
// Empty means the daemon's default. It returns ErrConfig if the daemon does not have the runtime.
func (p *Provider) chooseRuntime(ctx context.Context, spec fumehood.Spec) (string, error) {
	if spec.Runtime == "" && p.opts.Runtime == "" {
		return "", nil
	}
	has, err := p.runtimes(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range []string{p.opts.Runtime, spec.Runtime} {
		// The Engine finds a shim, whose name begins with io.containerd, by itself.
		if _, ok := has.Programs[name]; ok || name == "" || strings.HasPrefix(name, "io.containerd.") {
			continue
		}
		var names []string
		for name := range has.Programs {
			names = append(names, name)
		}
		slices.Sort(names)
		return "", &fumehood.Error{
			Op: "start sandbox " + spec.Name, Class: fumehood.ErrConfig,
			Err:  fmt.Errorf("the daemon has no runtime %q, only %s", name, strings.Join(names, ", ")),
			Hint: "add it to the runtimes of its configuration, or choose another one",
		}
	}
	if p.opts.Runtime == "" {
		return spec.Runtime, nil // the user chose it explicitly
	}
	return has.Choose(p.opts.Runtime, spec.Runtime), nil
}

// errOtherGuest is returned if a container would run a guest that its runtime cannot run.
var errOtherGuest = errors.New("the daemon's default runtime needs another file of the guest")

// knowRuntime makes sure that a container's guest is the one for its runtime. If the daemon's default runtime was
// unknown and needs another guest, it looks the default up and returns errOtherGuest.
func (p *Provider) knowRuntime(ctx context.Context, s compose.Service, runtime string) error {
	guest, err := p.guestOf(ctx, runtime)
	if err == nil && guest != s.Guest {
		_, err = p.runtimes(ctx)
		if err == nil {
			err = errOtherGuest
		}
	}
	return err
}

// guestOf returns the path of the guest's program in containers with a runtime.
func (p *Provider) guestOf(ctx context.Context, runtime string) (string, error) {
	has := p.cachedRuntimes()
	if has.Programs == nil && runtime != "" && compose.Obscure(runtime) {
		var err error
		if has, err = p.runtimes(ctx); err != nil {
			return "", err
		}
	}
	return has.Guest(runtime), nil
}

// logRuntime logs a warning if a sandbox's runtime isolates less than the daemon's default.
func (p *Provider) logRuntime(spec fumehood.Spec) {
	if has := p.cachedRuntimes(); spec.Runtime != "" && has.OwnKernel("") && !has.OwnKernel(spec.Runtime) {
		p.life.LoggerOf(spec).Warn("the sandbox's runtime isolates less than the daemon's default", "sandbox", spec.Name, "runtime", spec.Runtime, "default", has.Default)
	}
}
