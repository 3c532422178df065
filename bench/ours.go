package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
)

// oursContender is this module: one of its providers, used through the types of the root package.
type oursContender struct {
	called   string
	provider fumehood.Provider
	image    string
	spent    map[string]float64 // seconds by phase, of the samples of samplesRow
}

func newOurs(ctx context.Context, name, image string, opts docker.Options) (*oursContender, error) {
	p, err := docker.New(ctx, opts)
	return ours(name, p, image), err
}

// newNative returns the provider that needs no daemon.
func newNative(ctx context.Context, image string) (*oursContender, error) {
	p, err := native.New(ctx, native.Options{})
	return ours(byNative, p, image), err
}

func ours(name string, p fumehood.Provider, image string) *oursContender {
	return &oursContender{called: name, provider: p, image: image, spent: map[string]float64{}}
}

func (o *oursContender) name() string { return o.called }

func (o *oursContender) start(ctx context.Context) (box, error) {
	sb, err := o.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	return oursBox{o, sb}, nil
}

func (o *oursContender) sandbox(ctx context.Context) (fumehood.Sandbox, error) {
	return o.provider.Start(ctx, fumehood.Spec{Image: o.image})
}

func (o *oursContender) close(ctx context.Context) error { return o.provider.Close(ctx) }

type oursBox struct {
	contender *oursContender
	sb        fumehood.Sandbox
}

func (b oursBox) exec(ctx context.Context, args ...string) (int64, error) {
	res, err := b.sb.Exec(ctx, fumehood.Cmd{Args: args})
	if err != nil {
		return 0, err
	}
	if !res.Success() {
		return 0, fmt.Errorf("%v %s with code %d: %s", args, res.Outcome, res.ExitCode, res.Stderr.Text())
	}
	return res.Stdout.Total + res.Stderr.Total, nil
}

func (b oursBox) write(ctx context.Context, path string, content []byte) error {
	return b.sb.WriteFrom(ctx, path, bytes.NewReader(content), int64(len(content)), fumehood.WriteOptions{})
}

func (b oursBox) read(ctx context.Context, path string, size int64) error {
	content, err := b.sb.ReadFile(ctx, path, fumehood.ReadOptions{})
	if err != nil {
		return err
	}
	return wantSize(int64(len(content)), size)
}

func (b oursBox) remove(ctx context.Context) error { return b.sb.Close(ctx) }

func (b oursBox) echo(ctx context.Context) (time.Duration, error) {
	p, err := b.sb.Start(ctx, fumehood.Cmd{Args: []string{"cat"}, StdinPipe: true})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	begin := time.Now()
	if _, err := p.Write([]byte{'x'}); err != nil {
		return 0, err
	}
	for ev, err := range p.Events() {
		switch {
		case err != nil:
			return 0, err
		case string(ev.Data) == "x":
			took = time.Since(begin)
			if err := p.CloseStdin(); err != nil {
				return 0, err
			}
		case ev.Result != nil && (took == 0 || !ev.Result.Success()):
			return 0, fmt.Errorf("cat %s with code %d and %d bytes", ev.Result.Outcome, ev.Result.ExitCode, ev.Result.Stdout.Total)
		}
	}
	return took, nil
}
