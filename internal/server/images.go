package server

import (
	"context"
	"net/http"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

type prepared struct {
	Images map[string]string `json:"images" doc:"ids of the images by service"`
}

// registerImages adds the operation that prepares images, so that sandboxes start without pulls and builds.
func (s *Server) registerImages() {
	register(s, op{http.MethodPost, "/v1/images", "prepare-images", "Pull or build the images of a sandbox, without starting it", "Images"}, func(ctx context.Context, in *createInput) (*output[*prepared], error) {
		l, release, err := s.enter(in.Leased)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := s.permitted(in); err != nil {
			return nil, err
		}
		size := func(*prepared) int64 { return 4 << 10 }
		got, err := once(ctx, l, in.Key, in.RawBody, size, func(ctx context.Context, _ *call) (*prepared, error) {
			p, err := s.provider(ctx)
			if err != nil {
				return nil, err
			}
			preparer, ok := p.(provider.Preparer)
			if !ok {
				return nil, &fumehood.Error{Op: "prepare images", Class: fumehood.ErrUnsupported}
			}
			images, err := preparer.Prepare(ctx, in.Body, provider.PrepareOptions{})
			return &prepared{images}, err
		})
		return &output[*prepared]{got}, err
	})
}
