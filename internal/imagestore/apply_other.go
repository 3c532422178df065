//go:build !linux

package imagestore

import (
	"context"
	"errors"
	"io"

	"github.com/fumehood/fumehood"
)

func (s *Store) apply(context.Context, string, io.Reader, *budget) ([]Owned, error) {
	return nil, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("images are unpacked on Linux only")}
}

func syncAll(string) error { return nil }
