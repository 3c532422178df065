package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConfig_hung reads projects with a file on a file system that never answers: FUSE without a server, mounted in a
// mount namespace of the program.
func TestConfig_hung(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount file systems")
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer fuse.Close() // unblocks processes that still wait
	fuse.Fd()          // make it blocking, as mount requires
	if out, err := exec.CommandContext(t.Context(), "unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespaces: %v %s", err, out)
	}
	for name, files := range map[string]map[string]string{
		"the project": {},
		"include":     {"compose.yaml": "include: [hung/more.yaml]\nservices: {web: {image: a}}\n"},
		"env_file":    {"compose.yaml": "services: {web: {image: a, env_file: hung/env}}\n"},
		"dockerfile":  {"compose.yaml": "services: {web: {build: {context: ., dockerfile: hung/Dockerfile}}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, dir := program(t)
			hung := filepath.Join(dir, "hung")
			if err := os.Mkdir(hung, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(hung, "compose.yaml")
			for base, text := range files {
				file = filepath.Join(dir, base)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			own, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			script := `mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hung hung && exec fumehood config -f "$1" 3<&-`
			run := exec.CommandContext(ctx, "unshare", "-m", "sh", "-c", script, "sh", file)
			run.Dir, run.Env, run.ExtraFiles = cmd.Dir, append(cmd.Env, "DOCKER_HOST=unix:///nowhere.sock"), []*os.File{own}
			var out bytes.Buffer
			run.Stdout, run.Stderr = &out, &out
			err = run.Run()
			if code := run.ProcessState.ExitCode(); code != exitFailure && code != exitUsage || !strings.Contains(out.String(), hung) || !strings.Contains(out.String(), "no answer from its file system within 10s") {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}
