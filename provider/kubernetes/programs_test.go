//go:build linux && amd64

package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program builds the command line, and returns its path and the variables by which it uses the cluster.
func program(t *testing.T) (path string, env []string) {
	t.Helper()
	config := node(t)
	path = filepath.Join(t.TempDir(), "fumehood")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/fumehood")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // images without libraries have it too
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path, append(os.Environ(), "KUBECONFIG="+config, "FUMEHOOD_PROVIDER=kubernetes", "FUMEHOOD_GUEST_IMAGE="+guestImage, "FUMEHOOD_BINARY="+path)
}

// webProject is a project with a service that another one reaches by its name.
const webProject = `
services:
  default: {image: IMAGE, command: sleep infinity, depends_on: {web: {condition: service_healthy}}}
  web:
    image: IMAGE
    command: [sh, -c, "mkdir /www; echo page > /www/index.html; exec httpd -f -p 8080 -h /www"]
    healthcheck: {test: [CMD, wget, -qO-, "http://127.0.0.1:8080/"], interval: 50ms, retries: 100}
`

// The commands work with a cluster as with other providers.
func TestPrograms_commandLine(t *testing.T) {
	t.Parallel()
	path, env := program(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"in":           "content\n",
		"bind.yaml":    "services: {a: {image: i, volumes: ['.:/w:ro']}}\n",
		"compose.yaml": strings.ReplaceAll(webProject, "IMAGE", pushed(t)),
		"task.yaml": "name: sums\nsandbox: {image: " + debian + "}\nsolution: {command: [sh, -c, 'cat /task/prompt > answer']}\n" +
			"samples:\n- {id: one, files: {/task/prompt: {content: 'one'}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := fmt.Sprintf("programs-%d", os.Getpid())
	for _, step := range []struct {
		args string
		code int
		says string
	}{
		{"doctor", 0, "it reaches no network"},
		{"doctor --print-rbac", 0, "pods/exec"},
		{"run --image " + debian + " -- sh -c id;exit${IFS}3", 3, "uid=0(root)"},
		{"run --image " + debian + " --timeout 500ms -- sleep 60", 124, "500ms"},
		{"up --image " + debian + " --name " + name, 0, name},
		{"ps", 0, name},
		{"exec " + name + " -- hostname", 0, name},
		{"cp in " + name + ":/tmp/in", 0, ""},
		{"cp " + name + ":/tmp/in out", 0, ""},
		{"exec " + name + " -- cat /tmp/in", 0, "content"},
		{"connect " + name, 0, "fumehood shell " + name + " --provider kubernetes --namespace default"},
		{"run --network bridge --image " + debian + " -- cat /etc/resolv.conf", 0, "nameserver 10."},
		{"run -f compose.yaml -- wget -qO- http://web:8080/", 0, "page"},
		{"config -f bind.yaml", 125, "bind.yaml:1: services.a.volumes.0: "},
		{"cleanup --dry-run", 0, name + ": left"},
		{"down " + name, 0, name},
		{"down " + name, 125, "no sandbox " + name},
	} {
		cmd := exec.CommandContext(t.Context(), path, strings.Fields(step.args)...)
		cmd.Env, cmd.Dir = env, dir
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != step.code || !strings.Contains(string(out), step.says) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", step.args, code, step.code, step.says, out)
		}
	}
	if out, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(out) != "content\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// The Python client works with a cluster: commands, files, folders, ports, journals.
func TestPrograms_python(t *testing.T) {
	t.Parallel()
	path, env := program(t)
	cmd := exec.CommandContext(t.Context(), "python3", "-X", "dev", "-m", "unittest", "-k", "Kubernetes")
	cmd.Dir, cmd.Env = "../../clients/python", append(env, "PYTHONPATH=src", "FUMEHOOD_BINARY="+path)
	cmd.Env = append(cmd.Env, "FUMEHOOD_PROVIDER=") // each test names its own
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nOK") || strings.Contains(string(out), "\nRan 0 tests") {
		t.Errorf("%v\n%s", err, out)
	}
}
