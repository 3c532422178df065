package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood"
)

// The rows about Compose projects. Each starts one of its own, and removes it unmeasured.
const (
	idleProject  = "compose file, one idle service"
	probeProject = "compose file, two services, beyond the first probe"
)

// probeInterval is when the Engine first looks at the health of a service of probeProject. Nobody can be ready
// before, so that it does not count.
const probeInterval = time.Second

// projectFile is a row's Compose file, for an image. The idle service has no network, as the bare one; so the two
// make the same objects.
func projectFile(row, image string) string {
	if row == idleProject {
		return "services: {default: {image: " + image + ", command: sleep infinity, network_mode: none}}\n"
	}
	return `services:
  default: {image: ` + image + `, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db: {image: ` + image + `, command: tail -f /dev/null, init: true, healthcheck: {test: "true", interval: ` + probeInterval.String() + `}}
`
}

// projector is the capability of a box's contender to start a project. It returns how long that took until all was
// ready, and removes the project.
type projector interface {
	project(ctx context.Context, row string) (time.Duration, error)
}

// projectRows are the rows about projects.
func projectRows() []row {
	of := func(name string, less time.Duration) row {
		return row{name: name, times: 1, step: func(ctx context.Context, b box) (time.Duration, error) {
			p, ok := b.(projector)
			if !ok {
				return 0, errNotMeasured
			}
			took, err := p.project(ctx, name)
			return max(took-less, 1), err
		}}
	}
	return []row{of(idleProject, 0), of(probeProject, probeInterval)}
}

// inFile has f work with a project's file.
func inFile(row, image string, f func(path string) (time.Duration, error)) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "compose.yaml")
	if err := os.WriteFile(path, []byte(projectFile(row, image)), 0o600); err != nil {
		return 0, err
	}
	return f(path)
}

func (b oursBox) project(ctx context.Context, row string) (time.Duration, error) {
	return inFile(row, b.of.image, func(path string) (time.Duration, error) {
		begin := time.Now()
		sb, err := b.of.provider.Start(ctx, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{path}}})
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		return took, sb.Close(ctx)
	})
}

// project of the bare API is one container's creation and start.
func (b bareBox) project(ctx context.Context, row string) (time.Duration, error) {
	if row != idleProject {
		return 0, errNotMeasured
	}
	begin := time.Now()
	box, err := b.of.start(ctx)
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	return took, box.remove(ctx)
}

// noBox is of a contender that only starts projects.
type noBox struct{}

func (noBox) exec(context.Context, ...string) (int64, error) { return 0, errNotMeasured }
func (noBox) write(context.Context, string, []byte) error    { return errNotMeasured }
func (noBox) read(context.Context, string, int64) error      { return errNotMeasured }
func (noBox) remove(context.Context) error                   { return errNotMeasured }
