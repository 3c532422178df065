package compose

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
)

// A project without a file is read and checked like a file.
func TestLoad_content(t *testing.T) {
	dir := project(t, map[string]string{"x/y": "", ".env": "TAG=dir\n", "e.env": "A=from file\n", "part/compose.yaml": "services: {part: {image: i, env_file: e.env}}", "part/e.env": "A=b"})
	ctx := t.Context()
	src, err := fumehood.ComposeOf(map[string]any{"services": map[string]any{"a": map[string]any{
		"image": "i:${TAG-none}", "volumes": []string{"./x:/x:ro"}, "env_file": "e.env", "environment": map[string]string{"B": "$$HOME <"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	src.Dir = dir
	p, err := Load(ctx, "box", *src)
	if err != nil {
		t.Fatal(err)
	}
	a := p.as.Services["a"]
	if a.Image != "i:dir" || a.Volumes[0].Source != filepath.Join(dir, "x") || env(t, p, "a", "A") != "from file" || env(t, p, "a", "B") != "$HOME <" || p.as.WorkingDir != dir {
		t.Errorf("got %+v in %s", a, p.as.WorkingDir)
	}

	// Without a folder, it may use absolute paths, as far as the user allows them. It sees no .env file.
	t.Chdir(dir)
	p, err = Load(ctx, "box", fumehood.Compose{AllowRead: []string{dir}, Content: "include: ['" + dir + "/part/compose.yaml']\nservices: {a: {image: 'i:${TAG-none}', volumes: ['" + dir + "/x:/x:ro']}}\n"})
	if err != nil {
		t.Fatal(err)
	}
	if a := p.as.Services["a"]; a.Image != "i:none" || p.as.WorkingDir != "" || env(t, p, "part", "A") != "b" {
		t.Errorf("got %+v", p.as.Services)
	}

	// An inline Dockerfile needs no folder. Builds share caches only with the same content.
	build := func(content string) image.Source {
		p, err := Load(ctx, "box", fumehood.Compose{Content: content})
		if err != nil {
			t.Fatal(err)
		}
		sources := p.Sources()
		if len(sources) != 1 {
			t.Fatalf("got %v", sources)
		}
		return sources[0]
	}
	one, two := build("services: {a: {build: {dockerfile_inline: FROM x}}}"), build("services: {a: {build: {dockerfile_inline: FROM y}}}")
	if one.Build.Context != "" || one.Build.Inline != "FROM x" || one.Project == two.Project || one.Project == "" {
		t.Errorf("got %+v and %+v", one, two)
	}
}

// What Load refuses, it refuses in Compose.Content too. Without a folder, this includes every relative path.
func TestLoad_contentRefused(t *testing.T) {
	dir := project(t, map[string]string{"x": "", "e.env": "", "compose.yaml": "services: {a: {image: i}}"})
	t.Chdir(dir)
	inc := "{path: '" + dir + "/compose.yaml', "
	for name, c := range map[string]struct{ content, says string }{
		"privileged":          {"services:\n  a:\n    image: i\n    privileged: true\n", "Compose.Content:4: services.a.privileged: true: this is not safe"},
		"an unknown key":      {"services:\n  a:\n    image: i\n    no: true\n", "Compose.Content:4: services.a additional properties 'no' not allowed"},
		"no project":          {"text", "parse Compose.Content: a mapping was expected"},
		"too large":           {"#" + strings.Repeat(" ", maxFile), "Compose.Content is larger than 4194304 bytes"},
		"the host":            {"services: {a: {image: i, volumes: ['/etc:/x:ro']}}", "this is not safe"},
		"a path that is not":  {"services: {a: {image: i, env_file: '" + dir + "/e.env'}}", "is outside the project's folder, and may not be read"},
		"its working folder":  {"services: {a: {build: '" + dir + "'}}", "is outside the project's folder, and may not be read"},
		"relative: a mount":   {"services: {a: {image: i, volumes: ['./x:/x:ro']}}", "services.a.volumes: x is a relative path, but the project has no folder: set Compose.Dir"},
		"relative: above":     {"services: {a: {image: i, volumes: ['../../../etc:/x:ro']}}", "../../../etc is a relative path"},
		"relative: a device":  {"services: {a: {image: i, volumes: ['vol:/x']}}\nvolumes: {vol: {driver: local, driver_opts: {type: none, o: bind, device: ./x}}}", "volumes.vol.driver_opts.device: x is a relative path"},
		"relative: context":   {"services: {a: {build: .}}", "services.a.build.context: the build context must be a folder of this machine, not .; the project has no folder"},
		"relative: the same":  {"services: {a: {build: {context: ., dockerfile_inline: FROM x}}}", "the project has no folder for relative paths: set Compose.Dir"},
		"relative: env_file":  {"services: {a: {image: i, env_file: e.env}}", "e.env is a relative path"},
		"relative: optional":  {"services: {a: {image: i, env_file: [{path: none, required: false}]}}", "none is a relative path"},
		"relative: labels":    {"services: {a: {image: i, label_file: e.env}}", "e.env is a relative path"},
		"relative: a secret":  {"services: {a: {image: i, secrets: [s]}}\nsecrets: {s: {file: x}}", "secrets.s.file: x is a relative path"},
		"relative: a config":  {"services: {a: {image: i, configs: [s]}}\nconfigs: {s: {file: ./x}}", "configs.s.file: x is a relative path"},
		"relative: include":   {"include: [compose.yaml]\nservices: {a: {image: i}}", "include: compose.yaml is a relative path"},
		"relative: its files": {"include: [" + inc + "env_file: e.env}]\nservices: {a: {image: i}}", "include.env_file: e.env is a relative path"},
		"relative: its dir":   {"include: [" + inc + "project_directory: .}]\nservices: {a: {image: i}}", "include.project_directory: . is a relative path"},
		"relative: extends":   {"services: {b: {extends: {file: compose.yaml, service: a}}}", "services.b.extends.file: compose.yaml is a relative path"},
	} {
		t.Run(name, func(t *testing.T) {
			src := fumehood.Compose{Content: c.content, AllowUnsafe: strings.HasPrefix(name, "relative")}
			if strings.Contains(c.content, inc) {
				src.AllowRead = []string{dir}
			}
			if _, err := Load(t.Context(), "box", src); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
