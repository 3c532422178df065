package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/fumehood/fumehood/provider/docker"
)

// contender is one way to run commands in containers. A new one is a file of its own and a line in
// newContenders. It is used by one goroutine at a time.
type contender interface {
	// name heads its columns.
	name() string
	// start makes a box in which commands can be run.
	start(ctx context.Context) (box, error)
	// close ends the connection. What start has made and nobody has removed is removed by then.
	close(ctx context.Context) error
}

// box is one running container with the limits and the hardening that a sandbox of ours has.
type box interface {
	// exec runs a command to its end, reads all that it writes, and returns the number of bytes. An exit
	// code other than 0 is an error.
	exec(ctx context.Context, args ...string) (int64, error)
	// write makes the file path with this content, and read reads it all: into memory where the
	// contender can, else into a file.
	write(ctx context.Context, path string, content []byte) error
	read(ctx context.Context, path string, size int64) error
	// remove ends and removes the container with its volumes.
	remove(ctx context.Context) error
}

// echoer is the capability of a box to start cat, send it a byte, and return how long it took to come back.
type echoer interface {
	echo(ctx context.Context) (time.Duration, error)
}

// The names of the contenders, for the promises.
const (
	byFumehood = "fumehood"
	byStream   = "without socket"
	byEngine   = "bare Engine API"
	byCLI      = "docker CLI"
	byCompose  = "docker compose"
	bySDK      = "Compose SDK"
)

// newContenders makes all contenders, ours first: the others are what it is compared with. missing says
// which are left out, and why.
func newContenders(ctx context.Context, image string) (all []contender, missing []string, err error) {
	fumehood, err := newOurs(ctx, byFumehood, image, docker.Options{})
	if err != nil {
		return nil, nil, err
	}
	all = append(all, fumehood)
	stream, err := newOurs(ctx, byStream, image, docker.Options{NoSockets: true})
	if err != nil {
		return all, nil, err
	}
	all = append(all, stream)
	bare, err := newBare(ctx, image)
	if err != nil {
		return all, nil, err
	}
	all = append(all, bare)
	if bare.like, err = hardeningOf(ctx, bare.api, fumehood); err != nil {
		return all, nil, fmt.Errorf("learn the limits of a sandbox: %w", err)
	}
	sdk, err := newSDK(ctx, image)
	if err != nil {
		return all, nil, err
	}
	all = append(all, sdk)
	cli, err := newCLI(image, bare.like)
	if err != nil {
		return all, []string{fmt.Sprintf("%s and %s: left out: %v", byCLI, byCompose, err)}, nil
	}
	all = append(all, cli)
	compose, err := newCompose(ctx, cli, bare.like)
	if err != nil {
		return all, []string{fmt.Sprintf("%s: left out: %v", byCompose, err)}, nil
	}
	return append(all, compose), nil, nil
}

// counter counts what is written to it and keeps nothing.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

var _ io.Writer = (*counter)(nil)

// wantSize checks that a file was read as a whole.
func wantSize(got, want int64) error {
	if got != want {
		return fmt.Errorf("read %d bytes instead of %d", got, want)
	}
	return nil
}
