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
	"slices"
	"strconv"
	"strings"
	"time"
)

// cliContender uses the docker command, one process for each step, as most scaffolds do.
type cliContender struct {
	program string
	image   string
	flags   []string // of create: hardening and labels
	dir     string   // for files to copy
}

// newCLI finds the docker command. It returns an error if the command is not installed.
func newCLI(image string, like hardening) (*cliContender, error) {
	program, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	labels, err := ownerLabels()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fumehood-bench-")
	if err != nil {
		return nil, err
	}
	if like.SecurityOpt, err = profiles(like.SecurityOpt, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &cliContender{program: program, image: image, flags: like.flags(), dir: dir}
	for name, value := range labels {
		c.flags = append(c.flags, "--label="+name+"="+value)
	}
	return c, nil
}

// profiles writes each seccomp profile into a file of dir and returns options that name the file. The docker command
// requires a file; the Engine has the profile's text.
func profiles(opts []string, dir string) ([]string, error) {
	opts = slices.Clone(opts)
	for i, opt := range opts {
		if text, is := strings.CutPrefix(opt, "seccomp={"); is {
			file := filepath.Join(dir, "seccomp.json")
			if err := os.WriteFile(file, []byte("{"+text), 0o600); err != nil {
				return nil, err
			}
			opts[i] = "seccomp=" + file
		}
	}
	return opts, nil
}

// flags returns the hardening as flags of `docker create`.
func (h hardening) flags() []string {
	flags := []string{
		"--network=" + string(h.NetworkMode),
		"--log-driver=" + h.LogConfig.Type,
		"--memory=" + strconv.FormatInt(h.Memory, 10),
		"--memory-swap=" + strconv.FormatInt(h.MemorySwap, 10),
		"--cpus=" + strconv.FormatFloat(float64(h.NanoCPUs)/1e9, 'f', -1, 64),
		"--read-only=" + strconv.FormatBool(h.ReadonlyRootfs),
	}
	if h.PidsLimit != nil {
		flags = append(flags, "--pids-limit="+strconv.FormatInt(*h.PidsLimit, 10))
	}
	for name, value := range h.LogConfig.Config {
		flags = append(flags, "--log-opt="+name+"="+value)
	}
	for flag, values := range map[string][]string{"--cap-drop=": h.CapDrop, "--cap-add=": h.CapAdd, "--security-opt=": h.SecurityOpt} {
		for _, value := range values {
			flags = append(flags, flag+value)
		}
	}
	return flags
}

func (c *cliContender) name() string { return byCLI }

func (c *cliContender) start(ctx context.Context) (box, error) {
	args := append([]string{"create", "--pull=never", "--entrypoint=" + idle[0]}, c.flags...)
	out, err := c.run(ctx, append(append(args, c.image), idle[1:]...)...)
	if err != nil {
		return nil, err
	}
	b := cliBox{c, strings.TrimSpace(string(out))}
	_, err = c.run(ctx, "start", b.id)
	return b, err
}

func (c *cliContender) close(context.Context) error { return os.RemoveAll(c.dir) }

// run runs docker and returns its standard output.
func (c *cliContender) run(ctx context.Context, args ...string) ([]byte, error) {
	return program(ctx, c.program, args...)
}

// program runs a program and returns its standard output.
func program(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	detach(cmd)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return out, fmt.Errorf("%s %s: %w: %s", filepath.Base(path), args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}

type cliBox struct {
	c  *cliContender
	id string
}

func (b cliBox) exec(ctx context.Context, args ...string) (int64, error) {
	out, err := b.c.run(ctx, append([]string{"exec", b.id}, args...)...)
	return int64(len(out)), err
}

func (b cliBox) write(ctx context.Context, path string, content []byte) error {
	return writeBy(b.c.dir, content, func(file string) error {
		_, err := b.c.run(ctx, "cp", file, b.id+":"+path)
		return err
	})
}

func (b cliBox) read(ctx context.Context, path string, size int64) error {
	return readBy(b.c.dir, size, func(file string) error {
		_, err := b.c.run(ctx, "cp", b.id+":"+path, file)
		return err
	})
}

// writeBy copies content by a command. It first creates a file on the host; its cost is part of the measurement.
func writeBy(dir string, content []byte, copy func(file string) error) error {
	file := filepath.Join(dir, "write")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	return copy(file)
}

// readBy copies a file of the given size to the host by a command.
func readBy(dir string, size int64, copy func(file string) error) error {
	file := filepath.Join(dir, "read")
	if err := copy(file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return errors.Join(wantSize(info.Size(), size), os.Remove(file))
}

func (b cliBox) remove(ctx context.Context) error {
	_, err := b.c.run(ctx, "rm", "--force", "--volumes", b.id)
	return err
}

// process runs a whole command: see processRows.
func (b cliBox) process(ctx context.Context, row string) (time.Duration, error) {
	switch row {
	case runRow:
		return timeCall(func() error { return b.c.once(ctx) })
	case coldResult:
		return b.c.leaving(ctx)
	case runsRow:
		return timeCall(func() error { return crowdOf(runsAtOnce, runs, func() error { return b.c.once(ctx) }) })
	case helpRow:
		return timeCall(func() error { _, err := b.c.run(ctx, "help"); return err })
	}
	return 0, errNotMeasured
}

// leaving returns how long true in a new container takes, without the container's removal.
func (c *cliContender) leaving(ctx context.Context) (time.Duration, error) {
	name := "fumehood-bench-" + strings.ToLower(rand.Text()[:12])
	args := append([]string{"run", "--name=" + name, "--pull=never"}, c.flags...)
	took, err := timeCall(func() error { _, err := c.run(ctx, append(args, c.image, "true")...); return err })
	return took, errors.Join(err, cliBox{c, name}.remove(ctx))
}

// once runs true in a container that is removed afterwards.
func (c *cliContender) once(ctx context.Context) error {
	args := append([]string{"run", "--rm", "--pull=never"}, c.flags...)
	_, err := c.run(ctx, append(args, c.image, "true")...)
	return err
}
