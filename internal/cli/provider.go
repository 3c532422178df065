package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/provider/workers"
	"github.com/fumehood/fumehood/session/spec"
)

// auto is the provider that chooses: docker if an Engine answers, else native.
const auto = "auto"

const kubernetesName, workersName = "kubernetes", "workers"

// openProvider opens the provider with this name, which may be auto.
func (a *commandLine) openProvider(ctx context.Context, name string) (fumehood.Provider, error) {
	switch docker.Transport(a.transport) {
	case "", docker.TransportGuest, docker.TransportEngine:
	default:
		return nil, usageError("--transport %q is neither guest nor engine", a.transport)
	}
	chosen := a.provider == name || a.provider == auto // otherwise the flags are for another provider
	if chosen && a.userns && name != "native" && name != kubernetesName && name != workersName && !a.settings.used["user-namespace"] {
		return nil, usageError("--user-namespace is for the native and the kubernetes provider: add --provider native")
	}
	for owner, flag := range a.given {
		if chosen && name != owner {
			return nil, usageError("--%s is for the %s provider: add --provider %s", flag, owner, owner)
		}
	}
	switch name {
	case auto:
		return a.openAuto(ctx)
	case "docker":
		return a.openDocker(ctx)
	case "native":
		if chosen && a.needsEngine() && !a.settings.used["transport"] {
			return nil, usageError("--transport engine is for the docker provider")
		}
		return native.New(ctx, a.nativeOptions())
	case kubernetesName:
		opts, err := a.clusterOptions()
		if err != nil {
			return nil, err
		}
		return kubernetes.New(ctx, opts)
	case workersName:
		opts, err := a.fleetOptions()
		if err != nil {
			return nil, err
		}
		return workers.New(opts)
	case "local":
		if chosen && a.runtime != "" && !a.settings.used["runtime"] {
			return nil, usageError("--runtime is for containers: the local provider has none")
		}
		return local.New(local.Options{Logger: a.providerLog()})
	}
	return nil, usageError("--provider %q is not auto, docker, native, kubernetes, workers or local", name)
}

// needsEngine reports whether only the docker provider can do what the flags say.
func (a *commandLine) needsEngine() bool {
	return docker.Transport(a.transport) == docker.TransportEngine
}

// openAuto opens the docker provider, or the native one if there is no daemon for this user. A daemon that the user has
// named, but that does not answer, is an error: it may be on another machine.
func (a *commandLine) openAuto(ctx context.Context) (fumehood.Provider, error) {
	p, err := a.openDocker(ctx)
	if !errors.Is(err, docker.ErrNoDaemon) || a.needsEngine() {
		return p, err
	}
	n, nerr := a.openProvider(ctx, "native")
	if nerr != nil {
		return nil, errors.Join(err, nerr)
	}
	if errors.Is(err, fs.ErrPermission) {
		a.refused = reason(err)
	}
	a.providerLog().Info(reason(err) + "; sandboxes run with --provider native")
	return n, nil
}

// reason returns an error without its hint.
func reason(err error) string {
	if e, ok := errors.AsType[*fumehood.Error](err); ok {
		return e.Op + ": " + e.Err.Error()
	}
	return err.Error()
}

func (a *commandLine) openDocker(ctx context.Context) (fumehood.Provider, error) {
	p, err := docker.New(ctx, a.dockerOptions())
	if err != nil && ctx.Err() != nil { // we were interrupted: don't blame the daemon
		return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// openFor opens the provider for a file's type. The type docker means a sandbox that is made from an image, which other
// providers have too.
func (a *commandLine) openFor(ctx context.Context, fileType string) (fumehood.Provider, error) {
	if fileType == spec.TypeDocker && a.provider != spec.TypeLocal {
		return a.openProvider(ctx, a.provider)
	}
	return a.openProvider(ctx, fileType)
}

// actions returns the App that carries out commands.
func (a *commandLine) actions() *app.App {
	return &app.App{Open: a.openFor, AllowLocal: a.provider == spec.TypeLocal, Building: a.building, Logger: a.log}
}

// checkLocal rejects type local in a file unless --provider local is given.
func (a *commandLine) checkLocal(file, kind string) error {
	return spec.CheckType(file, kind, a.provider == spec.TypeLocal)
}

func (a *commandLine) dockerOptions() docker.Options {
	return docker.Options{
		Transport: docker.Transport(a.transport), StrictPrereqs: a.strict, NoReaper: a.noReaper, DefaultImage: a.image, Seccomp: a.seccomp, Runtime: a.runtime, AllowUnenforcedLimits: a.allowUnenforced, Logger: a.providerLog(), Progress: a.pulled,
		ClassicBuilder: os.Getenv("DOCKER_BUILDKIT") == "0", // as for the docker command
	}
}

func (a *commandLine) nativeOptions() native.Options {
	return native.Options{
		Builder: func(ctx context.Context) (native.Builder, error) {
			p, err := docker.New(ctx, a.dockerOptions())
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		NoReaper: a.noReaper, DefaultImage: a.image, Seccomp: a.seccomp, Runtime: a.runtime, UserNamespace: a.userns,
		AllowUnenforcedLimits: a.allowUnenforced, Logger: a.providerLog(), Progress: a.pulled,
	}
}
