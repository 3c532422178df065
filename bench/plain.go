package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// plainContender copies files on the host itself, without a container: what a file costs at least.
type plainContender struct{ dir string }

func newPlain() (*plainContender, error) {
	dir, err := os.MkdirTemp("", "fumehood-bench-")
	return &plainContender{dir}, err
}

func (c *plainContender) name() string { return byPlain }

func (c *plainContender) start(context.Context) (box, error) { return plainBox{c.dir}, nil }

func (c *plainContender) close(context.Context) error { return os.RemoveAll(c.dir) }

type plainBox struct{ dir string }

func (b plainBox) exec(context.Context, ...string) (int64, error) { return 0, errNotMeasured }

func (b plainBox) write(_ context.Context, path string, content []byte) error {
	return os.WriteFile(filepath.Join(b.dir, path), content, 0o600)
}

func (b plainBox) read(_ context.Context, path string, size int64) error {
	content, err := os.ReadFile(filepath.Join(b.dir, path))
	return errors.Join(err, wantSize(int64(len(content)), size))
}

// remove removes the files, so that the next round creates new ones as in a new container.
func (b plainBox) remove(context.Context) error {
	files, err := filepath.Glob(filepath.Join(b.dir, "*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return errors.Join(err, errNotMeasured)
}
