package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/tier"
)

// secretWord is in a file of the host that no sample may read.
const secretWord = "the-canary-sings"

// refused returns rows of a data set that must be rejected. Each requests something of the host, or more than the task
// grants.
func refused(canary string) []string {
	return []string{
		`"files": {"a": "leak/secret"}`,
		`"files": {"a": "up/task.yaml"}`,
		`"stdin": "leak/secret"`,
		`"setup": "leak/secret"`,
		`"steps": [{"command": "cat", "stdin": "leak/secret"}]`,
		`"grader": {"command": ["x"], "hidden": {"leak": "/leak"}}`,
		fmt.Sprintf(`"grader": {"command": ["x"], "hidden": {%q: "/leak"}}`, canary),
		`"environment": {"file": "env.yaml"}`,
		`"environment": {"compose": ["compose.yaml"]}`,
		`"environment": {"dockerfile": "Dockerfile"}`,
		`"environment": {"network": "host"}`,
		`"environment": {"network": "bridge"}`,
		`"environment": {"runtime": "runc"}`,
		`"environment": {"user": "root"}`,
		`"grader": {"command": ["x"], "user": "root"}`,
		`"grader": {"command": ["x"], "environment": {"file": "env.yaml"}}`,
		`"limits": {"memory": "none"}`,
		`"limits": {"pids": 100000}`,
		`"grader": {"command": ["x"], "limits": {"memory": "none"}}`,
		`"timeout": "none"`,
	}
}

// malformed are rows that are invalid in any task.
var malformed = []string{`"provider": "local"`, `"mounts": {"/": "/host"}`, `"id": "a\u001b[2J\nb"`}

// texts returns rows whose values are plain text although they look like paths, or whose commands try to reach the host
// from inside.
func texts(canary string) map[string]string {
	return map[string]string{
		"absolute":       fmt.Sprintf(`"stdin": %q, "command": ["cat"]`, canary+"/secret"),
		"above":          `"stdin": "../../canary/secret", "command": ["cat"]`,
		"of the process": `"stdin": "/proc/self/environ", "command": ["cat"]`,
		"a file":         fmt.Sprintf(`"files": {"a": %q}, "command": ["cat", "a"]`, canary+"/secret"),
		"a data URL":     `"files": {"a": "file:///etc/passwd"}, "command": ["cat", "a"]`,
		"to above":       `"files": {"/work/../../../../canary/new": "x"}, "command": ["true"]`,
		"set-up":         fmt.Sprintf(`"setup": %q, "command": ["true"]`, "cat "+canary+"/secret"),
		"writes":         fmt.Sprintf(`"command": ["sh", "-c", %q]`, "cat "+canary+"/secret; mkdir -p "+canary+"; echo x > "+canary+"/new"),
		"../../escaped":  `"command": ["true"]`,
	}
}

func TestEval_hostileDataSet(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	tier.Need(t, tier.CI)
	for name, uid := range map[string]uint32{"root": 0, "a user": 65534} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if os.Getuid() != 0 {
				t.Skip("needs root to change the user")
			}
			_, dir := program(t)
			canary := filepath.Join(dir, "canary")
			var good strings.Builder
			for id, row := range texts(canary) {
				quoted, err := json.Marshal(id)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&good, `{"id": %s, %s}`+"\n", quoted, row)
			}
			const task = "{name: t, environment: {image: fumehood-test/busybox, workdir: /work}, limits: {memory: 256MiB, pids: 200}, samples_from: data/rows.jsonl}"
			files := map[string]string{
				"canary/secret": secretWord, "task/task.yaml": task, "task/data/rows.jsonl": good.String(),
				"task/data/env.yaml":     "type: docker\ndocker: {image: fumehood-test/busybox, extra_mounts: {/: '/host:rw'}}",
				"task/data/compose.yaml": "services: {a: {image: fumehood-test/busybox, volumes: ['/:/host']}}", "task/data/Dockerfile": "FROM fumehood-test/busybox",
			}
			for file, text := range files {
				at := filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			for link, target := range map[string]string{"leak": canary, "up": ".."} {
				if err := os.Symlink(target, filepath.Join(dir, "task/data", link)); err != nil {
					t.Fatal(err)
				}
			}
			run := as(t, dir, uid, e.Endpoint())
			before := everything(t, canary)

			stdout, _ := run("eval", "task.yaml") // samples may fail
			if !strings.Contains(stdout, fmt.Sprintf("of %d", len(texts(canary)))) {
				t.Errorf("the task did not run: %s", stdout)
			}
			for _, rows := range [][]string{refused(canary), malformed} {
				var lines strings.Builder
				for i, row := range rows {
					if !strings.Contains(row, `"id"`) {
						row += fmt.Sprintf(`, "id": "%d"`, i)
					}
					if !strings.Contains(row, `"steps"`) {
						row += `, "command": ["cat"]`
					}
					lines.WriteString("{" + row + "}\n")
				}
				if err := os.WriteFile(filepath.Join(dir, "task/data/rows.jsonl"), []byte(lines.String()), 0o600); err != nil {
					t.Fatal(err)
				}
				out, err := run("eval", "task.yaml")
				for i, row := range rows {
					if at := fmt.Sprintf("rows.jsonl:%d: ", i+1); err == nil || !strings.Contains(out, at) {
						t.Errorf("%s: not rejected: %v, %s", row, err, out)
					}
				}
				stdout += out
			}
			if strings.Contains(stdout, secretWord) || strings.Contains(stdout, "\x1b[2J") {
				t.Errorf("the output has the secret or an escape sequence: %q", stdout)
			}
			if after := everything(t, canary); !maps.Equal(before, after) {
				t.Errorf("the host's files changed from %v to %v", before, after)
			}
			for file, text := range everything(t, filepath.Join(dir, "task", "fumehood-runs")) {
				if strings.Contains(text, secretWord) {
					t.Errorf("%s has the secret: %s", file, text)
				}
			}
			if escaped, err := filepath.Glob(filepath.Join(dir, "escaped*")); err != nil || len(escaped) > 0 {
				t.Errorf("files outside the runs: %q, %v", escaped, err)
			}
		})
	}
}

// as returns a function that runs fumehood in dir/task as a user. The user gets all of dir and access to the daemon.
func as(t *testing.T, dir string, uid uint32, endpoint string) func(args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("fumehood")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "fumehood")
	file, err := owner.SecretFile()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(files.WriteProgram(program, text, 0o755), os.WriteFile(filepath.Join(dir, "key"), secret, 0o600), os.Chmod(filepath.Dir(dir), 0o755)); err != nil { //nolint:gosec // to be run by others
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(uid), int(uid)))
	})
	if err != nil {
		t.Fatal(err)
	}
	credential := &syscall.Credential{Uid: uid, Gid: uid}
	if socket, ok := faultproxy.Socket(endpoint); ok {
		info, err := os.Stat(socket)
		if err != nil {
			t.Fatal(err)
		}
		credential.Groups = []uint32{info.Sys().(*syscall.Stat_t).Gid}
	}
	return func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = filepath.Join(dir, "task"), append(environment(dir), owner.SecretVariable+"="+filepath.Join(dir, "key"), "DOCKER_CONFIG="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// everything returns the contents of all regular files below a folder by path, and the modes of all other entries.
func everything(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all[path] = fmt.Sprint(info.Mode())
		if err == nil && info.Mode().IsRegular() {
			var text []byte
			text, err = os.ReadFile(path)
			all[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return all
}
