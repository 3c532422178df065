package cli

import (
	"context"
	"os"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/local"
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
		return local.New(local.Options{Logger: a.providerLog()})
	}
	return nil, usageError("--provider %q is neither docker nor local", name)
}

func (a *app) dockerOptions() docker.Options {
	return docker.Options{
		Transport: docker.Transport(a.transport), StrictPrereqs: a.strict, NoReaper: a.noReaper, DefaultImage: a.image, Logger: a.providerLog(), Progress: newPullProgress(a.tell).report,
		ClassicBuilder: os.Getenv("DOCKER_BUILDKIT") == "0", // as for the docker command
	}
}
