package spec

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestDiscover(t *testing.T) {
	const services, env = "services: {a: {image: b}}\n", "type: docker\n"
	for name, c := range map[string]struct {
		files string // in the folder, separated by spaces; the name selects the content
		at    string // within the folder
		kind  Kind
		found string // found files
		says  string // part of the expected error
	}{
		"an empty folder":                {says: "no Compose file, Dockerfile or environment spec in this folder (looked for compose.yaml, compose.yml, docker-compose.yaml, docker-compose.yml, Dockerfile, NAME.Dockerfile, Dockerfile.NAME, environment.yaml, environment.yml, env.yaml, env.yml)"},
		"a folder of other things":       {files: "README.md data.yaml Dockerfile.dockerignore", says: "no Compose file, Dockerfile"},
		"compose.yaml goes first":        {files: "docker-compose.yml docker-compose.yaml compose.yml compose.yaml Dockerfile env.yaml", kind: FoundCompose, found: "compose.yaml"},
		"then compose.yml":               {files: "docker-compose.yml docker-compose.yaml compose.yml", kind: FoundCompose, found: "compose.yml"},
		"then docker-compose.yaml":       {files: "docker-compose.yml docker-compose.yaml", kind: FoundCompose, found: "docker-compose.yaml"},
		"then docker-compose.yml":        {files: "docker-compose.yml", kind: FoundCompose, found: "docker-compose.yml"},
		"an override is laid over it":    {files: "compose.yaml compose.override.yml docker-compose.override.yml", kind: FoundCompose, found: "compose.yaml compose.override.yml"},
		"an override of another name":    {files: "docker-compose.yml docker-compose.override.yaml", kind: FoundCompose, found: "docker-compose.yml docker-compose.override.yaml"},
		"an override alone is nothing":   {files: "compose.override.yaml", says: "no Compose file, Dockerfile"},
		"a Dockerfile":                   {files: "Dockerfile x.Dockerfile env.yaml", kind: FoundDockerfile, found: "Dockerfile"},
		"NAME.Dockerfile":                {files: "x.Dockerfile env.yaml", kind: FoundDockerfile, found: "x.Dockerfile"},
		"Dockerfile.NAME":                {files: "Dockerfile.x Dockerfile.x.dockerignore", kind: FoundDockerfile, found: "Dockerfile.x"},
		"two Dockerfiles":                {files: "Dockerfile.x y.Dockerfile", says: "several Dockerfiles: Dockerfile.x, y.Dockerfile"},
		"no Dockerfile":                  {files: "Dockerfiles MyDockerfile .Dockerfile Dockerfile.", says: "no Compose file, Dockerfile"},
		"an environment spec":            {files: "env.yml environment.yaml", kind: FoundEnvironment, found: "environment.yaml"},
		"environment spec, short name":   {files: "env.yaml", kind: FoundEnvironment, found: "env.yaml"},
		"a folder in a file's place":     {files: "compose.yaml/x", says: "no Compose file, Dockerfile"},
		"a Compose file by its content":  {files: "services.x compose.override.yaml", at: "services.x", kind: FoundCompose, found: "services.x"},
		"a Compose file by a merged key": {files: "merged.x", at: "merged.x", kind: FoundCompose, found: "merged.x"},
		"one that only includes":         {files: "include.x", at: "include.x", kind: FoundCompose, found: "include.x"},
		"environment spec, by content":   {files: "type.x", at: "type.x", kind: FoundEnvironment, found: "type.x"},
		"a Dockerfile by its name":       {files: "web.Dockerfile", at: "web.Dockerfile", kind: FoundDockerfile, found: "web.Dockerfile"},
		"a file of something else":       {files: "list.x", at: "list.x", says: "neither a Compose file nor an environment spec"},
		"an empty file":                  {files: "empty.x", at: "empty.x", says: "the key services"},
		"a file of invalid YAML":         {files: "broken.x", at: "broken.x", says: "not named as a Dockerfile"},
		"nothing there":                  {at: "none", says: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file := range strings.FieldsSeq(c.files) {
				content := map[string]string{"services.x": services, "include.x": "include: [a.yaml]\n", "type.x": env, "list.x": "[a]\n", "merged.x": "x-all: &all [{services: {a: {image: b}}}]\n<<: *all\n", "empty.x": "", "broken.x": "FROM a\nRUN: [\n"}[file]
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Discover(filepath.Join(dir, c.at))
			if c.says != "" {
				if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			var want []string
			for file := range strings.FieldsSeq(c.found) {
				want = append(want, filepath.Join(dir, file))
			}
			if err != nil || got.Kind != c.kind || !slices.Equal(got.Files, want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestEnvironment_Sandbox(t *testing.T) {
	dir := t.TempDir()
	e, err := Parse(filepath.Join(dir, "env.yaml"), []byte(`type: docker
docker: {image: a, network: bridge, ports: {8080: 80}, extra_mounts: {.: /data}, user: nobody, mount_workspace: false, binary: podman, runtime: runsc}
environment: {env: {A: spec, B: spec}, include_os_env: true}
limits: {memory: 64MiB}
`))
	if err != nil {
		t.Fatal(err)
	}
	options := func(network string) SandboxOptions {
		return SandboxOptions{Volumes: VolumeLayers{Workspace: dir}, Network: network, GOOS: "linux"}
	}
	for network, want := range map[string]string{"host": "docker.network: host", "prod_default": "docker.network: prod_default", "bridge": ""} {
		file := *e
		file.Docker.Network, file.Environment.IncludeOSEnv = network, false
		for _, allowed := range []bool{false, true} {
			file.AllowUnsafe = allowed
			if _, _, err := file.Sandbox(options("")); (err != nil) != (want != "" && !allowed) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("a spec file's network %s, allowed %t: %v", network, allowed, err)
			}
		}
		file.AllowUnsafe = false
		if got, _, err := file.Sandbox(options("host")); err != nil || got.Network.Mode != "host" {
			t.Errorf("the user's network, with %s in the file: %q, %v", network, got.Network.Mode, err)
		}
	}
	if _, _, err := e.Sandbox(options("")); err == nil || !strings.Contains(err.Error(), "environment.include_os_env") {
		t.Errorf("a spec file passes on the host's variables: %v", err)
	}
	e.AllowUnsafe = true
	got, notes, err := e.Sandbox(SandboxOptions{
		Volumes: VolumeLayers{Workspace: dir}, Env: map[string]string{"B": "own"}, Host: []string{"C=host"}, Ports: Ports{{Container: 90}}, GOOS: "linux",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Image != "a" || got.Dir != "/workspace" || got.Network.Mode != "bridge" || got.User != "nobody" || got.Binary != "podman" || got.Runtime != "runsc" || got.Limits.Memory != 64<<20 ||
		got.Env["A"] != "spec" || got.Env["B"] != "own" || got.Env["C"] != "host" ||
		!slices.Equal(got.Ports, []fumehood.Port{{Host: 8080, Container: 80}, {Container: 90}}) ||
		!slices.Equal(got.Mounts, []fumehood.Mount{{Host: dir, Container: "/data"}}) {
		t.Errorf("got %+v", got)
	}
	if !slices.Equal(notes, []string{"variables of this machine are passed on: C"}) {
		t.Errorf("notes: %q", notes)
	}
}

// A spec's image may be a file in the spec's folder; those of flags and code may be any file.
func TestEnvironment_Sandbox_imageFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of images may not have a colon")
	}
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "env.yaml")
	for _, tt := range []struct {
		file, image, flag string
		allow             []string
		want              string // empty if it is refused
	}{
		{file, "oci:layout:v1", "", nil, "oci:" + dir + "/layout:v1"},
		{file, "docker-archive:" + outside + "/i.tar", "", nil, ""},
		{file, "docker-archive:" + outside + "/i.tar", "", []string{outside}, "docker-archive:" + outside + "/i.tar"},
		{file, "oci-archive:link/i.tar", "", nil, ""},
		{file, "docker-archive:../i.tar", "", nil, ""},
		{file, "docker-archive:../i.tar", "docker-archive:i.tar", nil, "docker-archive:i.tar"},
		{"", "docker-archive:" + outside + "/i.tar", "", nil, "docker-archive:" + outside + "/i.tar"},
	} {
		e := Environment{File: tt.file, Type: TypeDocker, Docker: Docker{Image: tt.image}, AllowRead: tt.allow}
		got, _, err := e.Sandbox(SandboxOptions{Volumes: VolumeLayers{Workspace: outside}, Image: tt.flag, GOOS: "linux"})
		if tt.want == "" && (!errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), "docker.image: ") || !strings.Contains(err.Error(), "outside the spec's folder")) || tt.want != "" && (err != nil || got.Image != tt.want) {
			t.Errorf("%+v: got %q, %v", tt, got.Image, err)
		}
	}
}

func TestDiscover_emptyPath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("Dockerfile", []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := Discover(""); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "the path is empty") {
		t.Errorf("got %+v, %v", found, err)
	}
	if found, err := Discover("."); err != nil || found.Kind != FoundDockerfile {
		t.Errorf("the current folder: got %+v, %v", found, err)
	}
}

// A folder may come from a third party. The names of its files must not make Discover follow links out of it.
func TestDiscover_links(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"compose.yaml", "compose.override.yaml", "Dockerfile", "environment.yaml"} {
		root := filetest.Lay(t, map[string]string{"private/file": "type: docker", "ov/other": "x"})
		dir := filepath.Join(root, "ov")
		if name == "compose.override.yaml" {
			if err := os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte("services: {}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("../private/file", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if found, err := Discover(dir); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), name+" is outside the folder that was named") {
			t.Errorf("%s: got %+v, %v", name, found, err)
		}
		if found, err := Discover(dir, filepath.Join(root, "private")); err != nil || len(found.Files) == 0 {
			t.Errorf("%s, allowed: got %+v, %v", name, found, err)
		}
		if err := errors.Join(os.Remove(filepath.Join(dir, name)), os.Symlink("other", filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
		if found, err := Discover(dir); err != nil || len(found.Files) == 0 {
			t.Errorf("%s, a link within: got %+v, %v", name, found, err)
		}
	}
}
