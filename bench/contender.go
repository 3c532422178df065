package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
)

// contender is one way to run commands in containers. To add one, write a file for it and add it to newContenders. A
// contender is not used concurrently.
type contender interface {
	// name is the heading of its columns.
	name() string
	// start creates a box in which commands can be run.
	start(ctx context.Context) (box, error)
	// close ends the connection and removes all boxes that were not removed before.
	close(ctx context.Context) error
}

// box is a running container with the limits and the hardening of a Fumehood sandbox.
type box interface {
	// exec runs a command to its end, reads its output, and returns the number of bytes. An exit code other than 0 is
	// an error.
	exec(ctx context.Context, args ...string) (int64, error)
	// write creates the file path with this content. read reads the whole file: into memory if the contender can,
	// otherwise into a file.
	write(ctx context.Context, path string, content []byte) error
	read(ctx context.Context, path string, size int64) error
	// remove kills and removes the container with its volumes.
	remove(ctx context.Context) error
}

// echoer is implemented by a box that can start cat and measure how long a byte takes there and back.
type echoer interface {
	echo(ctx context.Context) (time.Duration, error)
}

// clocked is implemented by a box of another process, which measures its calls. took returns how long the last one
// took.
type clocked interface {
	took() time.Duration
}

// since returns how long the last call of b took, which began at begin.
func since(b box, begin time.Time) time.Duration {
	if c, ok := b.(clocked); ok {
		return c.took()
	}
	return time.Since(begin)
}

// The names of the contenders, for the promises.
const (
	byFumehood = "fumehood"
	byStream   = "without socket"
	byNative   = "native"
	byEngine   = "bare Engine API"
	byCommand  = "fumehood CLI"
	byPython   = "python client"
	byCLI      = "docker CLI"
	byCompose  = "docker compose"
	bySDK      = "Compose SDK"
	byPlain    = "plain copy"
	byCrun     = "crun"

	byNativeRunsc = "native runsc"
	byDockerRunsc = "docker runsc"
)

// newContenders creates all contenders. Fumehood is the first: it is compared with the others. missing lists the ones
// that are left out, with the reason.
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
	if err := native.CheckSupport(); err != nil {
		missing = append(missing, fmt.Sprintf("%s: left out: %v", byNative, err))
	} else {
		without, err := newNative(ctx, image)
		if err != nil {
			return all, nil, err
		}
		all = append(all, without)
	}
	plain, err := newPlain()
	if err != nil {
		return all, nil, err
	}
	all = append(all, plain)
	bare, err := newBare(ctx, image)
	if err != nil {
		return all, nil, err
	}
	all = append(all, bare)
	if bare.like, err = hardeningOf(ctx, bare.api, fumehood); err != nil {
		return all, nil, fmt.Errorf("learn the limits of a sandbox: %w", err)
	}
	if crun, err := newCrun(ctx, bare.api, image); err != nil {
		missing = append(missing, fmt.Sprintf("%s: left out: %v", byCrun, err))
	} else {
		all = append(all, crun)
	}
	gvisor, without, err := newRunsc(ctx, bare.api, image)
	if all, missing = append(all, gvisor...), append(missing, without...); err != nil {
		return all, nil, err
	}
	sdk, err := newSDK(ctx, image)
	if err != nil {
		return all, nil, err
	}
	all = append(all, sdk)
	command, err := newCommand(ctx, image)
	if command != nil {
		all = append(all, command)
	}
	if err != nil {
		return all, nil, err
	}
	if path, err := findPython(ctx); err != nil {
		missing = append(missing, fmt.Sprintf("%s: left out: %v", byPython, err))
	} else {
		python, err := newPython(ctx, path, command)
		if python != nil {
			all = append(all, python)
		}
		if err != nil {
			return all, nil, err
		}
	}
	cli, err := newCLI(image, bare.like)
	if err != nil {
		return all, append(missing, fmt.Sprintf("%s and %s: left out: %v", byCLI, byCompose, err)), nil
	}
	all = append(all, cli)
	compose, err := newCompose(ctx, cli, bare.like)
	if err != nil {
		return all, append(missing, fmt.Sprintf("%s: left out: %v", byCompose, err)), nil
	}
	return append(all, compose), missing, nil
}

// counter counts the bytes written to it and discards them.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

var _ io.Writer = (*counter)(nil)

// wantSize returns an error if a file was not read completely.
func wantSize(got, want int64) error {
	if got != want {
		return fmt.Errorf("read %d bytes instead of %d", got, want)
	}
	return nil
}
