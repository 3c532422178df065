package docker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/provider/docker"
)

// project is a Compose project of one file, which it writes.
func project(t *testing.T, yaml string) *lazaret.Compose {
	t.Helper()
	file := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return &lazaret.Compose{Files: []string{file}}
}

const twoServices = `
services:
  web:
    image: lazaret-test/python
    command: [python3, -m, http.server, "8000"]
    healthcheck:
      test: [CMD, python3, -c, "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000')"]
      interval: 500ms
  default:
    image: lazaret-test/python
    command: sleep infinity
    depends_on: {web: {condition: service_healthy}}
`

func TestServicesComeUpInOrderAndReachEachOther(t *testing.T) {
	sb := start(t, newProvider(t, docker.Options{}), lazaret.Spec{Compose: project(t, twoServices)})
	info := sb.Info()
	if len(info.Services) != 2 || info.Services[0].Name != "default" || info.Services[1].Name != "web" {
		t.Fatalf("got %+v", info.Services)
	}
	res, err := sb.Exec(t.Context(), lazaret.Cmd{Args: []string{"python3", "-c", "import urllib.request; print(urllib.request.urlopen('http://web:8000').status)"}})
	if err != nil || res.Stdout.Text() != "200\n" {
		t.Errorf("%v, %+v", err, res)
	}
	web, err := sb.Lookup("web")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := web.Exec(t.Context(), lazaret.Cmd{Args: []string{"hostname"}}); err != nil || res.ExitCode != 0 {
		t.Errorf("%v, %+v", err, res)
	}
}
