package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/seccomp"
)

// crunContender uses the runtime crun without an Engine.
type crunContender struct {
	program, dir string
	spec, linux  map[string]any // the configuration
	count        int
	calls        chan func()
	isolated     func(func() error) error // calls a function on the thread of isolate
}

// newCrun unpacks the image.
func newCrun(ctx context.Context, api *client.Client, image string) (contender, error) {
	path, err := exec.LookPath("crun")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fumehood-bench-")
	if err != nil {
		return nil, err
	}
	c := &crunContender{program: path, dir: dir, calls: make(chan func())}
	if err := errors.Join(c.unpack(ctx, api, image), c.configure(ctx), c.isolate()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

// isolate starts a thread with a mount namespace of its own, without the tree of control groups that crun refuses to
// see beside those of version 1. All mounts of this contender end with it.
func (c *crunContender) isolate() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			_ = unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH) // fails where there is none
		}
		done <- err
		for call := range c.calls {
			call()
			done <- nil
		}
	}()
	c.isolated = func(f func() error) (err error) {
		c.calls <- func() { err = f() }
		return errors.Join(<-done, err)
	}
	return <-done
}

func (c *crunContender) unpack(ctx context.Context, api *client.Client, image string) error {
	created, err := api.ContainerCreate(ctx, client.ContainerCreateOptions{Config: &container.Config{Image: image, Entrypoint: idle}})
	if err != nil {
		return err
	}
	archive, err := api.ContainerExport(ctx, created.ID, client.ContainerExportOptions{})
	if err == nil {
		lower := filepath.Join(c.dir, "image")
		unpack := exec.CommandContext(ctx, "tar", "-x", "-C", lower)
		unpack.Stdin = archive
		err = errors.Join(os.Mkdir(lower, 0o755), unpack.Run(), archive.Close()) //nolint:gosec // the root of an image
	}
	_, removal := api.ContainerRemove(ctx, created.ID, client.ContainerRemoveOptions{Force: true})
	return errors.Join(err, removal)
}

// configure takes crun's own configuration, for a container that waits.
func (c *crunContender) configure(ctx context.Context) error {
	if _, err := program(ctx, c.program, "spec", "--bundle", c.dir); err != nil {
		return err
	}
	file := filepath.Join(c.dir, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	process, ok := spec["process"].(map[string]any)
	if !ok {
		return errors.New("crun's configuration has no process")
	}
	process["terminal"], process["args"], spec["root"] = false, idle, map[string]any{"path": "rootfs"}
	linux, ok := spec["linux"].(map[string]any)
	if !ok {
		return errors.New("crun's configuration has no Linux")
	}
	limits := fumehood.Limits{}.WithDefaults()
	linux["resources"] = map[string]any{
		"memory": map[string]any{"limit": limits.Memory, "swap": limits.Memory}, "pids": map[string]any{"limit": limits.PIDs},
	}
	c.spec, c.linux = spec, linux
	profile, err := seccomp.Load("")
	if err == nil {
		linux["seccomp"], err = seccomp.OCI(profile, nil)
	}
	return err
}

func (c *crunContender) name() string { return byCrun }

func (c *crunContender) start(ctx context.Context) (box, error) {
	c.count++
	b := crunBox{c, filepath.Join(c.dir, strconv.Itoa(c.count))}
	root, upper, work := filepath.Join(b.bundle, "rootfs"), filepath.Join(b.bundle, "upper"), filepath.Join(b.bundle, "work")
	if err := os.Mkdir(b.bundle, 0o755); err != nil { //nolint:gosec // the root of a container
		return nil, err
	}
	return b, c.isolated(func() error {
		if err := unix.Mount("tmpfs", b.bundle, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
		for _, dir := range []string{root, upper, work} {
			if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the root of a container
				return err
			}
		}
		layers := "lowerdir=" + filepath.Join(c.dir, "image") + ",upperdir=" + upper + ",workdir=" + work
		if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
			return err
		}
		c.linux["cgroupsPath"] = "/" + b.id()
		config, err := json.Marshal(c.spec)
		if err == nil {
			err = os.WriteFile(filepath.Join(b.bundle, "config.json"), config, 0o600)
		}
		if err != nil {
			return err
		}
		_, err = b.crun(ctx, "run", "--detach", "--bundle", b.bundle, b.id())
		return err
	})
}

// close removes the containers that are left.
func (c *crunContender) close(ctx context.Context) error {
	var errs []error
	for n := range c.count {
		b := crunBox{c, filepath.Join(c.dir, strconv.Itoa(n+1))}
		if _, err := os.Stat(b.bundle); err == nil {
			errs = append(errs, b.remove(ctx))
		}
	}
	close(c.calls)
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

type crunBox struct {
	contender *crunContender
	bundle    string
}

func (b crunBox) id() string {
	return "fumehood-bench-" + filepath.Base(filepath.Dir(b.bundle)) + "-" + filepath.Base(b.bundle)
}

// crun runs crun. It must not wait for the end of the container, which has the standard output too: a file, no pipe.
func (b crunBox) crun(ctx context.Context, args ...string) (int64, error) {
	out, err := os.CreateTemp(b.contender.dir, "output-")
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, b.contender.program, append([]string{"--cgroup-manager=cgroupfs", "--root", filepath.Join(b.contender.dir, "state")}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err = cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		err = fmt.Errorf("crun %s: %w: %s", args[0], err, bytes.TrimSpace(text))
	}
	info, failed := out.Stat()
	if err = errors.Join(err, failed, out.Close(), os.Remove(out.Name())); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (b crunBox) exec(ctx context.Context, args ...string) (size int64, err error) {
	err = b.contender.isolated(func() error {
		size, err = b.crun(ctx, append([]string{"exec", b.id()}, args...)...)
		return err
	})
	return size, err
}

func (b crunBox) write(context.Context, string, []byte) error { return errNotMeasured }

func (b crunBox) read(context.Context, string, int64) error { return errNotMeasured }

func (b crunBox) remove(ctx context.Context) error {
	return b.contender.isolated(func() error {
		_, err := b.crun(ctx, "delete", "--force", b.id())
		return errors.Join(err, unix.Unmount(filepath.Join(b.bundle, "rootfs"), 0), unix.Unmount(b.bundle, 0), os.RemoveAll(b.bundle))
	})
}
