package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// commandContender uses the fumehood command, one process for each step.
type commandContender struct {
	program string
	image   string
	dir     string // for files to copy
	boxes   map[string]bool
}

// newCommand builds the command, as `make build` does.
func newCommand(ctx context.Context, image string) (*commandContender, error) {
	dir, err := os.MkdirTemp("", "fumehood-bench-")
	if err != nil {
		return nil, err
	}
	c := &commandContender{program: filepath.Join(dir, "fumehood"), image: image, dir: dir, boxes: map[string]bool{}}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", c.program, "github.com/fumehood/fumehood/cmd/fumehood")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return c, fmt.Errorf("build the command: %w: %s", err, bytes.TrimSpace(out))
	}
	return c, nil
}

func (c *commandContender) name() string { return byCommand }

func (c *commandContender) start(ctx context.Context) (box, error) { return c.up(ctx) }

// up starts a kept sandbox. Its TTL lets a later cleanup remove it if this process is killed.
func (c *commandContender) up(ctx context.Context) (commandBox, error) {
	b := commandBox{c, "bench-" + strings.ToLower(rand.Text()[:12])}
	c.boxes[b.sandbox] = true
	_, err := c.run(ctx, "up", "--name", b.sandbox, "--ttl", "30m", "--image", c.image)
	return b, err
}

func (c *commandContender) close(ctx context.Context) error {
	var errs []error
	for sandbox := range c.boxes {
		errs = append(errs, commandBox{c, sandbox}.remove(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// run runs fumehood and returns its standard output.
func (c *commandContender) run(ctx context.Context, args ...string) ([]byte, error) {
	return program(ctx, c.program, args...)
}

type commandBox struct {
	c       *commandContender
	sandbox string
}

func (b commandBox) exec(ctx context.Context, args ...string) (int64, error) {
	out, err := b.c.run(ctx, append([]string{"exec", b.sandbox, "--"}, args...)...)
	return int64(len(out)), err
}

func (b commandBox) write(ctx context.Context, path string, content []byte) error {
	return writeBy(b.c.dir, content, func(file string) error {
		_, err := b.c.run(ctx, "cp", file, b.sandbox+":"+path)
		return err
	})
}

func (b commandBox) read(ctx context.Context, path string, size int64) error {
	return readBy(b.c.dir, size, func(file string) error {
		_, err := b.c.run(ctx, "cp", b.sandbox+":"+path, file)
		return err
	})
}

func (b commandBox) remove(ctx context.Context) error {
	_, err := b.c.run(ctx, "down", b.sandbox)
	if err == nil {
		delete(b.c.boxes, b.sandbox)
	}
	return err
}

// process runs a whole command: see processRows.
func (b commandBox) process(ctx context.Context, row string) (time.Duration, error) {
	once := func() error { return b.c.try(ctx, "run", "--image", b.c.image, "--", "true") }
	switch row {
	case runRow:
		return timeCall(once)
	case runsRow:
		return timeCall(func() error { return crowdOf(runsAtOnce, runs, once) })
	case coldResult, warmResult:
		return 0, errNotMeasured
	case psManyRow:
		return b.c.psMany(ctx)
	}
	return timeCall(func() error { return b.c.try(ctx, row) })
}

// psMany returns the median time of ps with many sandboxes, which it starts and removes.
func (c *commandContender) psMany(ctx context.Context) (time.Duration, error) {
	var more []commandBox
	for len(c.boxes) < psMany {
		b, err := c.up(ctx)
		if err != nil {
			return 0, err
		}
		more = append(more, b)
	}
	var all []time.Duration
	for range 10 {
		took, err := timeCall(func() error { return c.try(ctx, "ps") })
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	for _, b := range more {
		if err := b.remove(ctx); err != nil {
			return 0, err
		}
	}
	return median(all), nil
}

func (c *commandContender) try(ctx context.Context, args ...string) error {
	_, err := c.run(ctx, args...)
	return err
}
