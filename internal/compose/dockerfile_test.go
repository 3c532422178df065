package compose

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lazaret/lazaret"
)

func TestADockerfileIsAProjectOfOneServiceThatIdles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a $HOME "b": c`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "x.Dockerfile")
	p, err := Load(t.Context(), "name", lazaret.Compose{Dockerfile: file})
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(Policy{Volume: "guest", Serve: true, Images: map[string]Image{DefaultService: {Ref: "built", Entrypoint: []string{"/server"}, Command: []string{"-v"}}}})
	svc := p.project.Services[DefaultService]
	if build := p.as.Services[DefaultService].Build; build == nil || build.Context != dir || build.Dockerfile != file {
		t.Errorf("it is built of %+v", build)
	}
	if svc.Image != "built" || !slices.Equal(svc.Entrypoint, []string{GuestProgram, "serve"}) || len(svc.Command) > 0 || svc.NetworkMode != "none" {
		t.Errorf("got %+v", svc)
	}
	if !slices.Equal(svc.CapDrop, []string{"ALL"}) || len(svc.CapAdd) != len(capabilities) || svc.MemLimit == 0 || svc.PidsLimit == 0 {
		t.Errorf("it is not isolated: %+v", svc)
	}
	elsewhere, err := Load(t.Context(), "name", lazaret.Compose{Dockerfile: file, Dir: filepath.Dir(dir)})
	if err != nil || elsewhere.as.Services[DefaultService].Build.Context != filepath.Dir(dir) {
		t.Errorf("with another context: %v", err)
	}
}
