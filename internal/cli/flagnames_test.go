package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Errors that a flag causes name the flag, or what it sets in plain words, and no field of the library.
func TestErrors_flagNames(t *testing.T) {
	t.Parallel()
	first, dir := program(t)
	for name, text := range map[string]string{
		"compose.yaml": "services: {a: {image: i}}\n", "tree/file": "content", "tree/more": "content", "Dockerfile": "FROM scratch\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, says := range map[string]string{
		"--provider local run --memory 1GiB true":         "cannot limit memory, CPUs, processes or the disk",
		"--provider local run --image i true":             "cannot run an image",
		"--provider local run --user nobody true":         "cannot run commands as another user",
		"--provider local run --network bridge true":      "cannot choose a network",
		"--provider local run --volume /tmp:/tmp true":    "cannot mount paths",
		"run -f compose.yaml --image i true":              "--image cannot be combined with",
		"run -f compose.yaml --env A=b true":              "--env cannot be combined with",
		"run -f compose.yaml --user nobody true":          "--user cannot be combined with",
		"run -f compose.yaml --workdir /w true":           "--workdir cannot be combined with",
		"run -f Dockerfile --network none true":           "--network cannot be combined with",
		"up -f compose.yaml --volume /tmp:/tmp":           "--volume cannot be combined with",
		"up --ttl -1s":                                    "--ttl -1s is negative",
		"run --memory -2 true":                            "--memory",
		"run --memory 1KiB true":                          "the memory limit",
		"run --cpus -2 true":                              "the CPU limit -2 is negative",
		"run --disk -2 true":                              "--disk",
		"run --disk 1KiB true":                            "the disk limit 1024 is not between",
		"run --pids -2 true":                              "the process limit -2 is negative",
		"snapshot create tree -o out.tar --max-size 1":    "--max-size",
		"snapshot create tree -o out.tar --max-entries 1": "--max-entries",
	} {
		cmd := exec.CommandContext(t.Context(), "fumehood", strings.Fields(args)...)
		cmd.Env, cmd.Dir = first.Env, dir
		out, err := cmd.CombinedOutput()
		text := string(out)
		if err == nil || !strings.Contains(text, says) {
			t.Errorf("%s: %v, %q does not contain %q", args, err, text, says)
		}
		for _, name := range []string{"Limits", "Image", "User", "Network", "Mounts", "Env", "Dir", "Compose and", "TTL", "Keep", "the field"} {
			if strings.Contains(text, name) {
				t.Errorf("%s: %q has %q", args, text, name)
			}
		}
	}
}
