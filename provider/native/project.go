package native

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
)

// CheckCompose returns the error with which Start would refuse the Compose project of a spec: an ErrConfig, or an
// ErrUnsupported that names file and line. It starts nothing, asks nothing of this machine and works on every system.
func CheckCompose(ctx context.Context, opts Options, spec fumehood.Spec) error {
	if opts.Runtime != "" && !hasDockerfile(spec) {
		return notByRuntime(opts.Runtime, withProject)
	}
	p, err := compose.Load(ctx, cmp.Or(spec.Name, "project"), *spec.Compose)
	if err != nil {
		return err
	}
	return p.CheckPod(runner, spec.Keep)
}

// hasDockerfile reports whether the sandbox of a spec is one of an image that a Dockerfile builds.
func hasDockerfile(spec fumehood.Spec) bool {
	return spec.Compose != nil && spec.Compose.Dockerfile != ""
}

const withProject = "with a Compose project"

// notByRuntime returns the error of a runtime that cannot start a sandbox of a kind.
func notByRuntime(runtime, kind string) error {
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the native provider cannot use the runtime %s %s", runtime, kind), Hint: "use the docker provider",
	}
}

// runner is this provider for the checks of a project.
var runner = compose.Runner{Name: "native"}
