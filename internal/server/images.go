package server

import (
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// reports passes the provider's progress on to those who wait for images.
type reports struct {
	mu  sync.Mutex
	all map[chan api.Progress]string // the images that they wait for; empty for all
}

// send passes a report on. It does not block.
func (r *reports) send(p provider.Progress) {
	line := api.Progress{Type: api.EventProgress, Image: p.Image, Build: p.Build, Layer: p.Layer, Status: p.Status, Current: p.Current, Total: p.Total}
	r.mu.Lock()
	defer r.mu.Unlock()
	for to, image := range r.all {
		if image != "" && image != p.Image {
			continue
		}
		select {
		case to <- line:
		default: // the client is slow, and gets the next ones
		}
	}
}

// receive returns the reports of an image. stop, which must be called, closes them.
func (r *reports) receive(image string) (all <-chan api.Progress, stop func()) {
	to := make(chan api.Progress, 256)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[to] = image
	return to, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, to)
		close(to)
	}
}

// registerImages adds the operation that prepares images, so that sandboxes start without pulls and builds.
func (s *Server) registerImages() {
	registerStream(s, op{http.MethodPost, "/v1/images", "prepare-images", "Pull or build the images of a sandbox, without starting it. Each line is a step, and the last one the end. The steps of a Compose project can have those of other requests between", "Images"}, typeLines, api.Progress{}, withLease(func(ctx context.Context, l *lease, in *imagesInput) (*huma.StreamResponse, error) {
		if err := s.checkPermit(ctx, l, in.Provider, &in.Body); err != nil {
			return nil, err
		}
		p, err := s.provider(ctx)
		if err != nil {
			return nil, err
		}
		preparer, ok := p.(provider.Preparer)
		if !ok {
			return nil, &fumehood.Error{Op: "prepare images", Class: fumehood.ErrUnsupported}
		}
		return follow(ctx, l.life, api.Progress{Type: api.EventHeartbeat}, func(ctx context.Context, send func(any)) {
			images, err := s.prepare(ctx, l, preparer, in.Body, send)
			if err != nil {
				send(api.Progress{Type: api.EventError, Error: new(errorOf(err))})
				return
			}
			send(api.Progress{Type: api.EventEnd, Images: images})
		}), nil
	}))
}

// prepare prepares images, and sends the steps.
func (s *Server) prepare(
	ctx context.Context, l *lease, p provider.Preparer, spec fumehood.Spec, send func(any),
) (map[string]string, error) {
	steps, stop := s.reports.receive(spec.Image)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer stop()
	sending.Go(func() {
		for step := range steps {
			send(step)
		}
	})
	return l.prepare(ctx, p, spec, provider.PrepareOptions{})
}
