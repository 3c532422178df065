package cli

import (
	"context"
	"os"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/spec"
)

// open opens the provider with this name.
func (a *commandLine) open(ctx context.Context, name string) (fumehood.Provider, error) {
	switch docker.Transport(a.transport) {
	case "", docker.TransportGuest, docker.TransportEngine:
	default:
		return nil, usageError("--transport %q is neither guest nor engine", a.transport)
	}
	if a.userns && name != "native" && !a.settings.used["user-namespace"] {
		return nil, usageError("--user-namespace is for the native provider")
	}
	switch name {
	case "docker":
		p, err := docker.New(ctx, a.dockerOptions())
		if err != nil && ctx.Err() != nil { // we were interrupted: don't blame the daemon
			return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrCanceled, Err: fumehood.Ended(ctx)}
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	case "native":
		switch {
		case a.runtime != "" && !a.settings.used["runtime"]:
			return nil, usageError("--runtime is for containers: the native provider has none")
		case docker.Transport(a.transport) == docker.TransportEngine && !a.settings.used["transport"]:
			return nil, usageError("--transport engine is for the docker provider")
		}
		return native.New(ctx, a.nativeOptions())
	case "local":
		if a.runtime != "" && !a.settings.used["runtime"] {
			return nil, usageError("--runtime is for containers: the local provider has none")
		}
		return local.New(local.Options{Logger: a.providerLog()})
	}
	return nil, usageError("--provider %q is not docker, native or local", name)
}

// actions returns the App that carries out commands.
func (a *commandLine) actions() *app.App {
	return &app.App{Open: a.open, AllowLocal: a.provider == spec.TypeLocal, Building: a.building, Logger: a.log}
}

// allowed rejects type local in a file unless --provider local is given.
func (a *commandLine) allowed(file, kind string) error {
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
		NoReaper: a.noReaper, DefaultImage: a.image, Seccomp: a.seccomp, UserNamespace: a.userns, Logger: a.providerLog(),
		Progress: func(p native.Progress) {
			a.pulled(docker.Progress{Image: p.Image, Layer: p.Layer, Status: p.Status, Current: p.Current, Total: p.Total})
		},
	}
}
