package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
)

// Config is a Compose project as it would be started.
type Config struct {
	Default string          `json:"default"` // the default service
	Project json.RawMessage `json:"project"` // as Compose reads it, fully interpolated
	Changes []Change        `json:"changes"` // differences from the files
	YAML    []byte          `json:"-"`       // Project, as YAML
}

// Change is a difference from the files, or a setting that is allowed although it breaks the isolation.
type Change = compose.Change

// ResolveCompose returns the Compose project of a spec as it would be started. It does not contact the daemon, so the
// commands of images and the addresses of networks are unknown. Its errors are fumehood.ErrConfig.
func ResolveCompose(ctx context.Context, spec fumehood.Spec) (*Config, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	p, err := compose.Load(ctx, cmp.Or(spec.Name, projectName(spec.Compose)), *spec.Compose)
	if err != nil {
		return nil, err
	}
	c := &Config{Changes: p.Apply(compose.Policy{Volume: "fumehood-guest", Serve: !spec.Keep, Limits: spec.Limits, Runtime: spec.Runtime})}
	c.Default = p.Services()[0].Name
	if c.YAML, err = p.YAML(); err != nil {
		return nil, err
	}
	c.Project, err = p.JSON()
	return c, err
}

var notInNames = regexp.MustCompile(`[^a-z0-9_-]+`)

// projectName derives a name from the project's folder, for a project that is not started.
func projectName(src *fumehood.Compose) string {
	const unknown = "project"
	dir := src.Dir
	switch {
	case dir != "":
	case src.Content != "":
		return unknown
	default:
		dir = filepath.Dir(cmp.Or(append(src.Files, src.Dockerfile)...))
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	name := notInNames.ReplaceAllString(strings.ToLower(filepath.Base(dir)), "")
	return cmp.Or(strings.TrimLeft(name, "_-"), unknown)
}
