package workers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

var _ provider.ImageFetcher = (*Provider)(nil)

// NeededImages returns the images that a sandbox of the spec needs. It reads files on this machine, and takes the workers'
// architecture for this machine's.
func (p *Provider) NeededImages(ctx context.Context, spec fumehood.Spec) ([]provider.NeededImage, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return box.NeededImages(ctx, spec, runtime.GOARCH, nil)
}

// HasNeeded reports whether all workers have an image. Of a default image it is not known.
func (p *Provider) HasNeeded(ctx context.Context, i provider.NeededImage) (bool, error) {
	if i.Kind == provider.NeededBuild || i.Kind == provider.NeededDefault {
		return false, nil
	}
	op := "look up image " + i.Ref
	all, err := p.ready(ctx)
	if err != nil {
		return false, opError(op, err)
	}
	var missing atomic.Bool
	err = box.InParallel(len(all), func(n int) error {
		st, err := all[n].status(ctx, i.Ref)
		if err == nil && !st.HasImage {
			missing.Store(true)
		}
		return err
	})
	return err == nil && !missing.Load(), opError(op, err)
}

// FetchImage makes each worker have an image. The error names each worker that could not get it.
func (p *Provider) FetchImage(ctx context.Context, i provider.NeededImage) error {
	op := "fetch image " + i.Ref
	switch {
	case !i.Kind.Fetched():
		return image.NotFetched(i)
	case i.Platform != "":
		return &fumehood.Error{Op: op, Class: fumehood.ErrUnsupported, Err: fmt.Errorf("workers fetch images for their own platform, not %s", i.Platform)}
	}
	all, err := p.ready(ctx)
	if err != nil {
		return opError(op, err)
	}
	err = box.InParallel(len(all), func(n int) error {
		w := all[n]
		err := w.prepare(ctx, fumehood.Spec{Image: i.Ref})
		switch _, lost := asLost(err); {
		case ctx.Err() != nil:
			return &fumehood.Error{Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
		case lost:
			err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
		}
		if err != nil {
			err = fmt.Errorf("worker %s: %w", w.name, err)
		}
		return err
	})
	if err != nil { // it names each worker
		err = &fumehood.Error{Op: op, Class: cmp.Or(fumehood.ClassOf(err), fumehood.ErrInfrastructure), Err: err}
	}
	return err
}

// ImageStorage returns this machine's platform. The free space of the workers' disks is not known.
func (p *Provider) ImageStorage(context.Context) (provider.ImageStorage, error) {
	return provider.ImageStorage{Platform: "linux/" + runtime.GOARCH, Free: -1}, nil
}

// prepare makes the worker have the images of a spec.
func (w *worker) prepare(ctx context.Context, spec fumehood.Spec) error {
	l, err := w.newLease(ctx)
	if err != nil {
		return err
	}
	body, err := w.openStream(ctx, &request{method: http.MethodPost, path: "/v1/images", json: spec, lease: l, again: true})
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	lines.Split(splitLine)
	for lines.Scan() {
		var step api.Progress
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("invalid answer: %w", err)}
		}
		switch step.Type {
		case api.EventEnd:
			return nil
		case api.EventError:
			if step.Error == nil {
				return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("invalid answer: an error without a reason")}
			}
			return errorOf(*step.Error, 0)
		}
	}
	err = lines.Err()
	if err == nil {
		err = errors.New("the answer has no end")
	}
	return &lostError{w.name, err, true}
}
