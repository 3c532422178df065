package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood/internal/owner"
)

// bareContender makes the smallest number of Engine API calls for the same work: what a program would do that knows
// exactly what it needs.
type bareContender struct {
	api   *client.Client
	image string
	like  hardening
}

func newBare(_ context.Context, image string) (*bareContender, error) {
	api, err := client.New(client.FromEnv)
	return &bareContender{api: api, image: image}, err
}

func (b *bareContender) name() string { return byEngine }

// ownerLabels returns labels that mark a container as this process's. close finds containers by them; if this process
// is killed, `fumehood cleanup` does.
func ownerLabels() (map[string]string, error) {
	self, err := owner.Self()
	return map[string]string{owner.LabelOwner: self.String(), owner.LabelSandbox: "bench"}, err
}

func (b *bareContender) start(ctx context.Context) (box, error) {
	labels, err := ownerLabels()
	if err != nil {
		return nil, err
	}
	created, err := b.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: b.image, Entrypoint: idle, Labels: labels},
		HostConfig: &b.like.HostConfig,
	})
	if err != nil {
		return nil, err
	}
	if _, err := b.api.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err != nil {
		return nil, err
	}
	return bareBox{b, b.api, created.ID}, nil
}

// close removes all containers that this process has left in the daemon, including those of the other contenders.
func (b *bareContender) close(ctx context.Context) error {
	labels, err := ownerLabels()
	if err != nil {
		return err
	}
	filter := make(client.Filters).Add("label", owner.LabelOwner+"="+labels[owner.LabelOwner])
	left, err := b.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
	errs := []error{err}
	for _, c := range left.Items {
		errs = append(errs, bareBox{b, b.api, c.ID}.remove(ctx))
	}
	return errors.Join(append(errs, b.api.Close())...)
}

type bareBox struct {
	contender *bareContender
	api       *client.Client
	id        string
}

// attachExec creates an exec, attaches to it and thereby starts it.
func (b bareBox) attachExec(ctx context.Context, opts client.ExecCreateOptions) (id string, stream client.ExecAttachResult, err error) {
	created, err := b.api.ExecCreate(ctx, b.id, opts)
	if err != nil {
		return "", stream, err
	}
	stream, err = b.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	return created.ID, stream, err
}

func (b bareBox) exec(ctx context.Context, args ...string) (int64, error) {
	id, stream, err := b.attachExec(ctx, client.ExecCreateOptions{Cmd: args, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	var output counter
	if _, err := stdcopy.StdCopy(&output, &output, stream.Reader); err != nil {
		return 0, err
	}
	info, err := b.api.ExecInspect(ctx, id, client.ExecInspectOptions{})
	if err != nil {
		return 0, err
	}
	if info.Running || info.ExitCode != 0 {
		return 0, fmt.Errorf("%v: running %v, exit code %d", args, info.Running, info.ExitCode)
	}
	return int64(output), nil
}

func (b bareBox) echo(ctx context.Context) (time.Duration, error) {
	id, stream, err := b.attachExec(ctx, client.ExecCreateOptions{Cmd: []string{"cat"}, AttachStdin: true, AttachStdout: true})
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	const frame = 8 + 1 // a header and the byte
	if err := b.running(ctx, id); err != nil {
		return 0, err
	}
	begin := time.Now()
	if _, err := stream.Conn.Write([]byte{'x'}); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(stream.Reader, make([]byte, frame)); err != nil {
		return 0, err
	}
	return time.Since(begin), nil // closing the stream ends cat
}

// running waits until an exec has a process.
func (b bareBox) running(ctx context.Context, exec string) error {
	for {
		info, err := b.api.ExecInspect(ctx, exec, client.ExecInspectOptions{})
		if err != nil || info.PID != 0 {
			return err
		}
	}
}

func (b bareBox) write(ctx context.Context, path string, content []byte) error {
	var archive bytes.Buffer
	if err := tar.NewWriter(&archive).WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	// The content is not copied into the archive, so that this contender is as fast as possible.
	padding := bytes.Repeat([]byte{0}, (512-len(content)%512)%512+1024)
	_, err := b.api.CopyToContainer(ctx, b.id, client.CopyToContainerOptions{
		DestinationPath: "/",
		Content:         io.MultiReader(&archive, bytes.NewReader(content), bytes.NewReader(padding)),
	})
	return err
}

func (b bareBox) read(ctx context.Context, path string, size int64) error {
	res, err := b.api.CopyFromContainer(ctx, b.id, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return err
	}
	defer res.Content.Close()
	archive := tar.NewReader(res.Content)
	head, err := archive.Next()
	if err != nil {
		return err
	}
	if err := wantSize(head.Size, size); err != nil {
		return err
	}
	_, err = io.ReadFull(archive, make([]byte, size))
	return err
}

func (b bareBox) remove(ctx context.Context) error {
	_, err := b.api.ContainerRemove(ctx, b.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}
