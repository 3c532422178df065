package composesdk_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/cli/cli/command"
	"github.com/docker/cli/cli/flags"
	"github.com/docker/compose/v5/pkg/api"
	sdk "github.com/docker/compose/v5/pkg/compose"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
)

func TestSDK_labels(t *testing.T) {
	for own, sdk := range map[string]string{
		compose.ProjectLabel: api.ProjectLabel, compose.ServiceLabel: api.ServiceLabel, compose.NumberLabel: api.ContainerNumberLabel, compose.OneoffLabel: api.OneoffLabel,
		compose.VersionLabel: api.VersionLabel, compose.WorkingDirLabel: api.WorkingDirLabel, compose.ConfigFilesLabel: api.ConfigFilesLabel,
	} {
		if own != sdk {
			t.Errorf("the label %s is %s", own, sdk)
		}
	}
}

// The plugin `docker compose` is a command line for the same SDK.
func TestSDK_dockerComposeFinds(t *testing.T) {
	state := t.TempDir()
	p := dockertest.Provider(t, docker.Options{StateDir: state})
	cli, err := command.NewDockerCli(command.WithOutputStream(io.Discard), command.WithErrorStream(io.Discard))
	if err == nil {
		err = cli.Initialize(flags.NewClientOptions())
	}
	if err != nil {
		t.Fatal(err)
	}
	service, err := sdk.NewComposeService(cli)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(file, []byte("services:\n  a: {image: fumehood-test/busybox, command: sleep infinity}\n  b: {image: fumehood-test/busybox, command: sleep infinity}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec       fumehood.Spec
		containers int
	}{
		"of an image":  {fumehood.Spec{Image: "fumehood-test/busybox", Keep: true}, 1},
		"of a project": {fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}}, Keep: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			sb, err := p.Start(ctx, c.spec)
			if err != nil {
				t.Fatal(err)
			}
			project := sb.Info().Name
			stacks, err := service.List(ctx, api.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			files := ""
			for _, s := range stacks {
				if s.Name == project {
					files = s.ConfigFiles
				}
			}
			if want := filepath.Join(state, project, "compose.yaml"); files != want {
				t.Errorf("its file is %q, want %q", files, want)
			}
			containers, err := service.Ps(ctx, project, api.PsOptions{})
			if err != nil || len(containers) != c.containers {
				t.Errorf("ps has %+v, %v", containers, err)
			}
			if err := service.Down(ctx, project, api.DownOptions{}); err != nil {
				t.Error(err)
			}
			if containers, err = service.Ps(ctx, project, api.PsOptions{All: true}); err != nil || len(containers) > 0 {
				t.Errorf("after down: %+v, %v", containers, err)
			}
			if err := sb.Close(ctx); err != nil {
				t.Error(err)
			}
			if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{project}}); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
