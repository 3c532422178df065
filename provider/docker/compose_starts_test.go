package docker_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// A Go value starts a project, without a file.
func TestStart_content(t *testing.T) {
	t.Parallel()
	type service struct {
		Image       string            `json:"image"`
		Command     []string          `json:"command"`
		Environment map[string]string `json:"environment,omitempty"`
		Volumes     []string          `json:"volumes,omitempty"`
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note"), []byte("a note"), 0o644); err != nil {
		t.Fatal(err)
	}
	idle := []string{"sleep", "infinity"}
	project, err := fumehood.ComposeOf(struct {
		Services map[string]service `json:"services"`
	}{map[string]service{
		"default": {Image: busybox, Command: idle, Environment: map[string]string{"GREETING": "${WORD} & <$$5>"}, Volumes: []string{"./note:/note:ro"}},
		"other":   {Image: busybox, Command: idle},
	}})
	if err != nil {
		t.Fatal(err)
	}
	project.Dir, project.Env = dir, map[string]string{"WORD": "hello"}
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", `echo "$GREETING $(cat /note)"`}})
	if err != nil || res.Stdout.Text() != "hello & <$5> a note\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := sb.Lookup("other"); err != nil {
		t.Error(err)
	}
}

// Variables that are not set are logged, once for all starts.
func TestStart_unsetVariable(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProvider(t, docker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	spec := fumehood.Spec{Compose: project(t, "services:\n  default:\n    image: "+busybox+"\n    command: sleep infinity\n    environment: {A: \"$FUMEHOOD_NOPE\", B: \"${FUMEHOOD_NOPE}\", C: \"${FUMEHOOD_NONE-}\"}\n")}
	for range 2 {
		start(t, p, spec)
	}
	var found []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "is not set") {
			found = append(found, line)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], "level=WARN") || !strings.Contains(found[0], "variable=FUMEHOOD_NOPE at="+spec.Compose.Files[0]+":5") {
		t.Errorf("got %q", found)
	}
}

// A port in use is a mistake of the request, wherever the service is published.
func TestStart_portInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	p := newProvider(t, docker.Options{})
	for name, spec := range map[string]fumehood.Spec{
		"an image's":      {Image: busybox, Network: fumehood.Network{Mode: fumehood.NetworkBridge}, Ports: []fumehood.Port{{Host: port, Container: 80}}},
		"a project's":     {Compose: &fumehood.Compose{Egress: fumehood.EgressInternet, Content: fmt.Sprintf("x-fumehood: {keep_ports: true}\nservices: {default: {image: %s, command: sleep infinity, ports: ['%d:80']}}", busybox, port)}},
		"a forwarded one": {Compose: &fumehood.Compose{Content: fmt.Sprintf("x-fumehood: {keep_ports: true}\nservices: {default: {image: %s, command: sleep infinity, ports: ['%d:80']}}", busybox, port)}},
	} {
		err := comesToNothing(t, p, spec, fumehood.ErrConfig)
		if errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), fmt.Sprint(port)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A mount in /proc is a mistake of the request.
func TestStart_mountInProc(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, transport := range []docker.Transport{docker.TransportGuest, docker.TransportEngine} { // the guest's check comes before the Engine's
		p := newProvider(t, docker.Options{Transport: transport})
		for _, at := range []string{"/proc", "/proc/sys/kernel"} {
			err := comesToNothing(t, p, fumehood.Spec{Image: busybox, Mounts: []fumehood.Mount{{Host: dir, Container: at}}}, fumehood.ErrConfig)
			if errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), at) {
				t.Errorf("%s, transport %s: got %v", at, transport, err)
			}
		}
	}
}

// A mount point cannot be removed. The error does not blame a configuration.
func TestRemove_busy(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: busybox})
	if err := sb.Remove(t.Context(), "/etc/hosts", fumehood.RemoveOptions{}); !errors.Is(err, fumehood.ErrPermission) || errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v of class %v", err, fumehood.ClassOf(err))
	}
}
