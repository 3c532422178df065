package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/fumehood/fumehood/provider/docker"
)

// heldSandboxes is the number of sandboxes whose memory is compared, and moreEach is the promise: how many bytes more
// of a server's memory each may need than of a process that uses the library.
const (
	heldSandboxes = 60
	moreEach      = 1 << 20
)

var memoryRow = fmt.Sprintf("python: memory of %d sandboxes", heldSandboxes)

// memory is the resident memory of two processes with the same number of sandboxes, in bytes.
type memory struct{ library, server int64 }

// each returns how much more a sandbox needs in a server.
func (m memory) each() int64 { return (m.server - m.library) / heldSandboxes }

func (m memory) kept() bool { return m.each() <= moreEach }

func (m memory) String() string {
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	figures := fmt.Sprintf("%.2f MiB (server %.1f, library %.1f)", mib(m.each()), mib(m.server), mib(m.library))
	return fmt.Sprintf("%s: at most %.4g MiB more each than the library's: %s: %s",
		memoryRow, mib(moreEach), figures, keptOrNot(m.kept()))
}

// memoryShown reports whether -only matches.
func memoryShown(only *regexp.Regexp) bool { return only.MatchString(memoryRow) }

// memory starts sandboxes by a process that uses the library, then by the Python client at a new server. It returns
// nil where memory cannot be measured.
func (p *pythonContender) memory(ctx context.Context) (*memory, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout) // like each step
	defer cancel()
	library, err := p.libraryMemory(ctx)
	if errors.Is(err, errNotMeasured) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	server, err := p.serverMemory(ctx)
	if err != nil {
		return nil, err
	}
	return &memory{library, server}, nil
}

func (p *pythonContender) libraryMemory(ctx context.Context) (int64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	library, err := startChild(ctx, nil, self, "-hold", strconv.Itoa(heldSandboxes), "-image", p.image)
	if err != nil {
		return 0, err
	}
	if err := library.ask(ctx, nil, &struct{}{}); err != nil {
		return 0, err
	}
	size, err := library.resident()
	return size, errors.Join(err, library.close(ctx))
}

func (p *pythonContender) serverMemory(ctx context.Context) (size int64, err error) {
	server, address, err := serve(ctx, p.binary)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.close(ctx)) }()
	args := map[string]any{"address": address, "count": heldSandboxes, "at_once": atOnce}
	if _, err := p.call(ctx, "hold", args); err != nil {
		return 0, err
	}
	if size, err = server.resident(); err != nil {
		return 0, err
	}
	_, err = p.call(ctx, "release", nil)
	return size, err
}

// hold starts sandboxes, runs a command in each, and keeps them until standard input closes. libraryMemory runs it in a
// separate process.
func hold(ctx context.Context, count int, image string) (err error) {
	own, err := newOurs(ctx, byFumehood, image, docker.Options{})
	if err != nil {
		return err
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
		defer cancel()
		err = errors.Join(err, own.close(cctx))
	}()
	if err := crowdOf(atOnce, count, func() error {
		b, err := own.start(ctx)
		if err != nil {
			return err
		}
		return command(ctx, b, 0, "true")
	}); err != nil {
		return err
	}
	if _, err := fmt.Println("{}"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
