package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	dockercli "github.com/docker/cli/cli/command"
	"github.com/docker/cli/cli/flags"
	"github.com/docker/compose/v5/pkg/api"
	sdk "github.com/docker/compose/v5/pkg/compose"
	"github.com/sirupsen/logrus"
)

// sdkContender uses the Compose SDK in this process, with its own wait for readiness. It only starts projects.
type sdkContender struct {
	cli     *dockercli.DockerCli
	service api.Compose
	image   string
	made    atomic.Int64
}

func newSDK(ctx context.Context, image string) (*sdkContender, error) {
	logrus.SetOutput(io.Discard)
	cli, err := dockercli.NewDockerCli(dockercli.WithBaseContext(ctx), dockercli.WithCombinedStreams(io.Discard))
	if err != nil {
		return nil, err
	}
	if err := cli.Initialize(flags.NewClientOptions()); err != nil {
		return nil, err
	}
	service, err := sdk.NewComposeService(cli, sdk.WithPrompt(sdk.AlwaysOkPrompt()))
	return &sdkContender{cli: cli, service: service, image: image}, err
}

func (c *sdkContender) name() string { return bySDK }

func (c *sdkContender) start(context.Context) (box, error) { return sdkBox{contender: c}, nil }

func (c *sdkContender) close(context.Context) error { return c.cli.Client().Close() }

type sdkBox struct {
	noBox
	contender *sdkContender
}

// project measures `up --wait`, and then removes the project.
func (b sdkBox) project(ctx context.Context, row string) (took time.Duration, err error) {
	labels, err := ownerLabels()
	if err != nil {
		return 0, err
	}
	name := fmt.Sprintf("bench-sdk-%d-%d", os.Getpid(), b.contender.made.Add(1))
	return inFile(row, b.contender.image, func(path string) (time.Duration, error) {
		begin := time.Now()
		p, err := loader.LoadWithContext(ctx, types.ConfigDetails{ConfigFiles: []types.ConfigFile{{Filename: path}}},
			func(o *loader.Options) { o.SetProjectName(name, true) })
		if err != nil {
			return 0, err
		}
		for key, svc := range p.Services {
			svc.Labels = labels
			svc.CustomLabels = types.Labels{
				api.ProjectLabel: name, api.ServiceLabel: key, api.OneoffLabel: "False", api.VersionLabel: api.ComposeVersion,
			}
			p.Services[key] = svc
		}
		err = b.contender.service.Up(ctx, p, api.UpOptions{Start: api.StartOptions{Project: p, Wait: true}})
		took := time.Since(begin)
		return took, errors.Join(err, b.contender.service.Down(ctx, name, api.DownOptions{Project: p, Timeout: new(time.Duration)}))
	})
}
