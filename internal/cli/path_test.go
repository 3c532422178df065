package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// The user has no docker program, and only the variable that locates the daemon.
func TestRun_bareEnvironment(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	cmd := exec.CommandContext(t.Context(), "fumehood", "run", "--json", "--image", "fumehood-test/python", "--", "python3", "-c", "print(6*7)")
	cmd.Env = []string{"PATH=/nonexistent"}
	if host, ok := os.LookupEnv("DOCKER_HOST"); ok {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+host)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got struct {
		Sandbox string
		Stdout  fumehood.Output
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Stdout.Text() != "42\n" {
		t.Errorf("got %s", &stdout)
	}
	left, err := e.Objects(t.Context(), owner.LabelSandbox+"="+got.Sandbox)
	if err != nil || got.Sandbox == "" {
		t.Fatalf("sandbox %q: %v", got.Sandbox, err)
	}
	for _, o := range left {
		t.Errorf("left behind: %s %s", o.Kind, o.Name)
	}
}
