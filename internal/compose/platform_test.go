package compose

import (
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

// The SDK takes the platform of services from this variable of the project, which a file under test may set.
func TestApply_defaultPlatform(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{
		"compose.yaml": "services: {a: {image: i, labels: {seen: '$DOCKER_DEFAULT_PLATFORM'}}}", ".env": "DOCKER_DEFAULT_PLATFORM=linux/s390x\n",
	})
	p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(Policy{})
	if got, ok := p.project.Environment["DOCKER_DEFAULT_PLATFORM"]; ok {
		t.Errorf("the SDK gets %q", got)
	}
	if got := p.project.Services["a"].Labels["seen"]; got != "linux/s390x" {
		t.Errorf("the file sees %q", got)
	}
}
