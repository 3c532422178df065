package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood"
)

// The rows about Compose projects. Each starts a project, and removes it outside of the measured time.
const (
	idleProject  = "compose file, one idle service"
	probeProject = "compose file, two services, beyond the first probe"
)

// probeInterval is the time until the Engine's first health check of a service of probeProject. No contender can be
// ready before, so it is subtracted.
const probeInterval = time.Second

// projectFile returns the Compose file of a row, for an image. The idle service has no network, like the bare
// contender's container, so that both create the same objects.
func projectFile(row, image string) string {
	if row == idleProject {
		return "services: {default: {image: " + image + ", command: sleep infinity, network_mode: none}}\n"
	}
	return `services:
  default: {image: ` + image + `, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db: {image: ` + image + `, command: tail -f /dev/null, init: true, healthcheck: {test: "true", interval: ` + probeInterval.String() + `}}
`
}

// projector is implemented by boxes whose contender can start a project. project returns the time until all services
// were ready, and removes the project.
type projector interface {
	project(ctx context.Context, row string) (time.Duration, error)
}

// projectRows returns the rows about projects.
func projectRows() []row {
	rowOf := func(name string, less time.Duration) row {
		return row{name: name, times: 1, step: func(ctx context.Context, b box) (time.Duration, error) {
			p, ok := b.(projector)
			if !ok {
				return 0, errNotMeasured
			}
			took, err := p.project(ctx, name)
			return max(took-less, 1), err
		}}
	}
	return []row{rowOf(idleProject, 0), rowOf(probeProject, probeInterval)}
}

// inFile calls f with the path of a file that contains the row's project.
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
	return inFile(row, b.contender.image, func(path string) (time.Duration, error) {
		begin := time.Now()
		sb, err := b.contender.provider.Start(ctx, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{path}}})
		took := time.Since(begin)
		if errors.Is(err, fumehood.ErrUnsupported) {
			return 0, errNotMeasured
		}
		if err != nil {
			return 0, err
		}
		return took, sb.Close(ctx)
	})
}

// project creates and starts one container; the bare API has no projects.
func (b bareBox) project(ctx context.Context, row string) (time.Duration, error) {
	if row != idleProject {
		return 0, errNotMeasured
	}
	begin := time.Now()
	box, err := b.contender.start(ctx)
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	return took, box.remove(ctx)
}

// noBox is embedded in the box of a contender that only starts projects.
type noBox struct{}

func (noBox) exec(context.Context, ...string) (int64, error) { return 0, errNotMeasured }
func (noBox) write(context.Context, string, []byte) error    { return errNotMeasured }
func (noBox) read(context.Context, string, int64) error      { return errNotMeasured }
func (noBox) remove(context.Context) error                   { return errNotMeasured }
