package cli

import (
	"context"
	"errors"
	"os"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/spec"
)

// open returns the provider of that name.
func (a *app) open(ctx context.Context, name string) (fumehood.Provider, error) {
	switch docker.Transport(a.transport) {
	case "", docker.TransportGuest, docker.TransportEngine:
	default:
		return nil, usageError("--transport %q is neither guest nor engine", a.transport)
	}
	switch name {
	case "docker":
		p, err := docker.New(ctx, a.dockerOptions())
		if err != nil && ctx.Err() != nil { // that no daemon has answered is not its fault
			return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrCancelled, Err: context.Cause(ctx)}
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	case "local":
		if a.runtime != "" && !a.settings.used["runtime"] {
			return nil, usageError("--runtime is for containers: the local provider has none")
		}
		return local.New(local.Options{Logger: a.providerLog()})
	}
	return nil, usageError("--provider %q is neither docker nor local", name)
}

// openFor returns the provider that a file needs. The file cannot choose the local one, which isolates nothing: the user
// does.
func (a *app) openFor(ctx context.Context, file, name string) (fumehood.Provider, error) {
	if err := a.allowed(file, name); err != nil {
		return nil, err
	}
	return a.open(ctx, name)
}

func (a *app) allowed(file, name string) error {
	if name != spec.TypeLocal || a.provider == spec.TypeLocal {
		return nil
	}
	return &fumehood.Error{
		Op: "read", Path: file, Class: fumehood.ErrConfig, Err: errors.New("type local runs commands on this machine, without isolation"),
		Hint: "allow it with --provider local",
	}
}

func (a *app) dockerOptions() docker.Options {
	return docker.Options{
		Transport: docker.Transport(a.transport), StrictPrereqs: a.strict, NoReaper: a.noReaper, DefaultImage: a.image, Seccomp: a.seccomp, Runtime: a.runtime, AllowUnenforcedLimits: a.allowUnenforced, Logger: a.providerLog(), Progress: newPullProgress(a.tell).report,
		ClassicBuilder: os.Getenv("DOCKER_BUILDKIT") == "0", // as for the docker command
	}
}
