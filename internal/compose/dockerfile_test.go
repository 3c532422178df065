package compose

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
)

func TestLoad_dockerfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a $HOME "b": c`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "x.Dockerfile")
	p, err := Load(t.Context(), "name", fumehood.Compose{Dockerfile: file})
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(Policy{Volume: "guest", Serve: true, Images: map[string]Image{DefaultService: {Ref: "built", Entrypoint: []string{"/server"}, Command: []string{"-v"}}}})
	svc := p.project.Services[DefaultService]
	if build := p.as.Services[DefaultService].Build; build == nil || build.Context != dir || build.Dockerfile != file {
		t.Errorf("the build is %+v", build)
	}
	if svc.Image != "built" || !slices.Equal(svc.Entrypoint, []string{GuestProgram, "serve"}) || len(svc.Command) > 0 || svc.NetworkMode != "none" {
		t.Errorf("got %+v", svc)
	}
	if !slices.Equal(svc.CapDrop, []string{"ALL"}) || len(svc.CapAdd) != len(capabilities) || svc.MemLimit == 0 || svc.PidsLimit == 0 {
		t.Errorf("the service is not isolated: %+v", svc)
	}
	elsewhere, err := Load(t.Context(), "name", fumehood.Compose{Dockerfile: file, Dir: filepath.Dir(dir)})
	if err != nil || elsewhere.as.Services[DefaultService].Build.Context != filepath.Dir(dir) {
		t.Errorf("with another context: %v", err)
	}
}

func TestProject_YAML(t *testing.T) {
	spec := fumehood.Spec{
		Name: "name", Image: "image", Env: map[string]string{"A": "$HOME ${X} $$ \n\"'"}, User: "1:2", Dir: "/a b", Network: fumehood.Network{Mode: "bridge"},
		Ports: []fumehood.Port{{Container: 80}}, Mounts: []fumehood.Mount{{Host: "/etc", Container: "/x:y", Writable: true}},
		Limits: fumehood.Limits{CPUs: 1.5, PIDs: fumehood.NoLimit},
	}
	p := FromSpec(spec)
	p.Apply(Policy{Volume: "guest", Serve: true, Sockets: func(string) string { return "/sockets" }, Limits: spec.Limits, Labels: Labels{"fumehood.owner": "me"}})
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	got, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: "/state/name", ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: text}}})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	svc := got.Services[DefaultService]
	if *svc.Environment["A"] != spec.Env["A"] || svc.Image != "image" || svc.PidsLimit != fumehood.NoLimit || svc.MemLimit != fumehood.DefaultMemory || svc.Labels["fumehood.owner"] != "me" || len(svc.Volumes) != 3 {
		t.Errorf("got %+v of\n%s", svc, text)
	}
}

func BenchmarkProject_YAML(b *testing.B) {
	p := FromSpec(fumehood.Spec{Name: "name", Image: "image"})
	p.Apply(Policy{Volume: "guest", Serve: true, Labels: Labels{"fumehood.owner": "me"}})
	for b.Loop() {
		if _, err := p.YAML(); err != nil {
			b.Fatal(err)
		}
	}
}
