package compose

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
)

// sourcesOf loads a project and returns its image sources.
func sourcesOf(t *testing.T, text string, env map[string]string) ([]image.Source, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "compose.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Load(t.Context(), "name", fumehood.Compose{Files: []string{file}, Env: env, AllowUnsafe: true})
	if err != nil {
		return nil, err
	}
	all := p.Sources()
	for i := range all {
		if all[i].Build != nil {
			all[i].Build.Context = strings.TrimPrefix(all[i].Build.Context, dir)
		}
	}
	return all, nil
}

func TestProject_Sources(t *testing.T) {
	for name, c := range map[string]struct {
		service string
		want    image.Source
	}{
		"an image":             {"{image: a}", image.Source{Image: "a", Pull: image.PullMissing}},
		"always":               {"{image: a, pull_policy: always}", image.Source{Image: "a", Pull: image.PullAlways}},
		"daily":                {"{image: a, pull_policy: daily}", image.Source{Image: "a", Pull: image.PullAlways, Age: 24 * time.Hour}},
		"never":                {"{image: a, pull_policy: never}", image.Source{Image: "a", Pull: image.PullNever}},
		"of this machine":      {"{image: a, x-local: true}", image.Source{Image: "a", Pull: image.PullNever}},
		"of this machine only": {"{image: a, pull_policy: always, x-local: true}", image.Source{Image: "a", Pull: image.PullNever}},
		"for a platform":       {"{image: a, platform: linux/arm64}", image.Source{Image: "a", Pull: image.PullMissing, Platform: "linux/arm64"}},
		"a build":              {"{build: sub}", image.Source{Pull: image.PullMissing, Build: &image.Build{Context: "/sub", Dockerfile: "Dockerfile"}}},
		"a build in the file": {
			`{image: b, build: {dockerfile_inline: "FROM a", args: [X, Y, Z=1], platforms: [linux/arm64], extra_hosts: [b=2.2.2.2, a=1.1.1.1], ulimits: {nofile: 5}, shm_size: 1m, no_cache: true, pull: true, labels: {k: v}, tags: [c], target: t, network: none, cache_from: [d]}}`,
			image.Source{Image: "b", Pull: image.PullMissing, Platform: "linux/arm64", Build: &image.Build{
				Inline: "FROM a", Args: map[string]string{"X": "seen", "Z": "1"}, ExtraHosts: []string{"a:1.1.1.1", "b:2.2.2.2"},
				Ulimits: []image.Ulimit{{Name: "nofile", Soft: 5, Hard: 5}}, ShmSize: 1 << 20, NoCache: true, Pull: true, Labels: Labels{"k": "v"}, Tags: []string{"c"},
				Target: "t", Network: "none", CacheFrom: []string{"d"},
			}},
		},
		"secrets": {
			"{build: {context: ., secrets: [file, {source: env, target: id}]}}",
			image.Source{Pull: image.PullMissing, Build: &image.Build{Dockerfile: "Dockerfile", Secrets: []image.Secret{{ID: "file", File: "/of"}, {ID: "id", Content: "seen"}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := sourcesOf(t, "services:\n  web: "+c.service+"\nsecrets: {file: {file: /of}, env: {environment: X}}\n", map[string]string{"X": "seen"})
			if err != nil {
				t.Fatal(err)
			}
			c.want.Service = "web"
			if b := c.want.Build; b != nil && b.Args == nil {
				b.Args = map[string]string{}
			}
			if len(all) == 1 && filepath.IsAbs(all[0].Project) {
				c.want.Project = all[0].Project
			}
			if len(all) != 1 || !reflect.DeepEqual(all[0], c.want) {
				t.Errorf("got %+v, build %+v", all, all[0].Build)
			}
		})
	}
}

func TestProject_Sources_errors(t *testing.T) {
	for name, c := range map[string]struct{ build, says string }{
		"another context":  {"{context: ., additional_contexts: {x: docker-image://y}}", "compose.yaml:2: services.web.build.additional_contexts"},
		"several things":   {"{context: ., cache_to: [type=inline], sbom: true}", "services.web.build.cache_to"},
		"its origin":       {"{context: ., sbom: true}", "services.web.build.sbom"},
		"rights":           {"{context: ., privileged: true}", "services.web.build.privileged"},
		"keys":             {"{context: ., ssh: [default]}", "services.web.build.ssh"},
		"a remote context": {"{context: \"https://github.com/a/b.git\"}", "not https://github.com/a/b.git"},
		"two platforms":    {"{context: ., platforms: [linux/amd64, linux/arm64]}", "services.web.build.platforms"},
	} {
		_, err := sourcesOf(t, "services:\n  web: {build: "+c.build+"}\n", nil)
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
