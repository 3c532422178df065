//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/moby/moby/client"
)

func newCrun(context.Context, *client.Client, string) (contender, error) {
	return nil, errors.New("crun needs Linux")
}
