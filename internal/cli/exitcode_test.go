package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// An invalid file of the user is wrong usage, whatever it describes. This is found before a daemon is contacted.
func TestExitCode_invalidFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		args  string
		says  string
	}{
		"settings":         {map[string]string{"config/fumehood/config.yaml": "imgae: x\n"}, "version", `config.yaml:1: there is no setting "imgae"`},
		"task":             {map[string]string{"task.yaml": "name: t\nsamplez: []\n"}, "eval task.yaml", "task.yaml:2: samplez: wanted"},
		"value of a task":  {map[string]string{"task.yaml": "name: t\nsamples: [{id: a}]\n"}, "eval task.yaml", "neither a command nor steps"},
		"no task":          {nil, "eval task.yaml", "no such file"},
		"no folder's task": {map[string]string{"x": ""}, "eval .", "no such file"},
		"spec":             {map[string]string{"env.yaml": "type: docker\ndocker: {imge: x}\n"}, "run -f env.yaml -- true", "env.yaml:2: docker.imge: wanted"},
		"spec of up":       {map[string]string{"env.yaml": "type: docker\ndocker: {imge: x}\n"}, "up -f env.yaml", "env.yaml:2: docker.imge: wanted"},
		"spec of a task":   {map[string]string{"task.yaml": "name: t\nenvironment: {file: env.yaml}\nsamples: [{id: a, command: x}]\n", "env.yaml": "type: x\n"}, "eval task.yaml", "env.yaml:1: type: wanted"},
		"spec to build":    {map[string]string{"env.yaml": "type: docker\ndocker: {imge: x}\n"}, "image build env.yaml", "env.yaml:2: docker.imge: wanted"},
		"spec's network":   {map[string]string{"env.yaml": "type: docker\ndocker: {image: x, network: host}\n"}, "run -f env.yaml -- true", "docker.network: host"},
		"spec's provider":  {map[string]string{"env.yaml": "type: local\n"}, "run -f env.yaml -- true", "type local runs commands on this machine"},
		"spec of session":  {map[string]string{"env.yaml": "type: x\n", "work/x": ""}, "session run env.yaml --workspace work", "env.yaml:1: type: wanted"},
		"no spec":          {nil, "run -f env.yaml -- true", "no such file"},
		"Compose":          {map[string]string{"compose.yaml": "services: {a: {image: x, privileged: true}}\n"}, "config -f compose.yaml", "compose.yaml:1: services.a.privileged"},
		"Compose syntax":   {map[string]string{"compose.yaml": "services: {a: {imge: x}}\n"}, "config -f compose.yaml", "imge"},
		"unknown file":     {map[string]string{"x.yaml": "a: b\n"}, "run -f x.yaml -- true", "neither a Compose file nor"},
		"seccomp":          {map[string]string{"profile.json": "{}"}, "run --seccomp profile.json -- true", "read seccomp profile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, dir := program(t, strings.Fields(c.args)...)
			cmd.Env = append(cmd.Env, "DOCKER_HOST=unix://"+filepath.Join(dir, "no.sock"))
			for name, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != exitUsage || !strings.Contains(string(out), c.says) {
				t.Errorf("%v\n%s", err, out)
			}
			if hint := strings.Contains(string(out), "--help"); hint != (name == "settings") { // help does not describe files
				t.Errorf("got\n%s", out)
			}
		})
	}
}

func TestExitCode_file(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outer: %w", &fumehood.Error{Op: "read", Class: fumehood.ErrFile})
	if exitCode(err) != exitUsage || !errors.Is(err, fumehood.ErrConfig) || describe(err).Code != fumehood.CodeConfig || !errors.Is(fumehood.ClassOf(err), fumehood.ErrConfig) {
		t.Errorf("exit code %d, %+v", exitCode(err), describe(err))
	}
}

func TestSettings_allErrors(t *testing.T) {
	t.Parallel()
	_, _, err := runWith(t, "imgae: a\nuser: [a]\nimage: b\nimage: c\ntimeout: soon\n", map[string]string{"FUMEHOOD_CPUS": "many"}, "true")
	for _, says := range []string{`config.yaml:1: there is no setting "imgae"`, "config.yaml:2: user: a plain value", `config.yaml:4: "image" is set twice`, "config.yaml:5: timeout: ", "variable FUMEHOOD_CPUS: "} {
		if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v\nwithout %s", err, says)
		}
	}
}
