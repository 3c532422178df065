package taskfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// resolvable returns a folder with a task that names files of all kinds.
func resolvable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"task.yaml": `name: all
samples:
  - id: graded
    environment: {image: fumehood-test/busybox, env: {GREETING: hello}}
    files: {/a: a.txt, /b: "text"}
    setup: setup.sh
    steps:
      - {name: one, command: "true", stdin: in.txt, timeout: 3s, env: {A: secret-of-step}, expect: {stdout: {exact: ""}}}
    grader: {command: [cat, /hidden/key], hidden: {hidden: /hidden}, artifacts: [/a], env: {A: secret-of-grader}}
  - id: project
    environment: {compose: compose.yaml}
    command: [echo, hi]
    expect: {stdout: {json: {n: 1.50}}}
`,
		"a.txt": "a", "in.txt": "in", "setup.sh": "true", "hidden/key": "key", ".env": "TOKEN=secret-of-env-file\n",
		"compose.yaml": "services: {one: {image: fumehood-test/busybox}}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func resolve(t *testing.T, dir string) string {
	t.Helper()
	if os.Getenv(owner.SecretVariable) == "" {
		t.Setenv(owner.SecretVariable, filepath.Join(t.TempDir(), "secret"))
	}
	f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFile_Resolved_content(t *testing.T) {
	dir := resolvable(t)
	got := resolve(t, dir)
	for _, want := range []string{
		"name: all\n", "- id: graded\n", "image: fumehood-test/busybox\n", "GREETING: hmac-sha256:", "path: " + filepath.Join(dir, "a.txt") + "\n",
		"text: text\n", "path: " + filepath.Join(dir, "setup.sh") + "\n", "timeout: 3s\n", "exact: \"\"\n", "path: " + filepath.Join(dir, "in.txt") + "\n",
		"path: " + filepath.Join(dir, "hidden/key") + "\n", "path: " + filepath.Join(dir, "compose.yaml") + "\n", "timeout: 10m0s\n", `{"n":1.50}`,
		"sha256: ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\n", // printf a | sha256sum
	} {
		if !strings.Contains(got, want) {
			t.Errorf("text without %q:\n%s", want, got)
		}
	}
	var all struct{ Samples []struct{ ID string } }
	if err := yaml.Unmarshal([]byte(got), &all); err != nil || len(all.Samples) != 2 || all.Samples[1].ID != "project" {
		t.Errorf("parsed again: got %+v, %v", all, err)
	}
	if again := resolve(t, dir); again != got {
		t.Errorf("the same task gives\n%s\nand then\n%s", got, again)
	}
}

func TestFile_Resolved_changes(t *testing.T) {
	for _, change := range []struct{ file, old, new string }{
		{"task.yaml", "timeout: 3s", "timeout: 4s"},
		{"task.yaml", `exact: ""`, "trimmed: ''"},
		{"task.yaml", "GREETING: hello", "GREETING: bye"},
		{"task.yaml", "n: 1.50", "n: 1.51"},
		{"task.yaml", "artifacts: [/a]", "artifacts: [/b]"},
		{"task.yaml", "[echo, hi]", "[echo, ho]"},
		{"a.txt", "a", "b"},
		{"in.txt", "in", "IN"},
		{"setup.sh", "true", "test"},
		{"hidden/key", "key", "KEY"},
		{"compose.yaml", "one:", "two:"},
		{".env", "secret-of-env-file", "secret-of-this-file"},
		{"task.yaml", "secret-of-step", "secret-to-step"},
		{"task.yaml", "secret-of-grader", "secret-to-grader"},
	} {
		dir := resolvable(t)
		path := filepath.Join(dir, change.file)
		was := strings.ReplaceAll(resolve(t, dir), dir, "DIR")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), change.old, change.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.ReplaceAll(resolve(t, dir), dir, "DIR") == was {
			t.Errorf("%s: %q instead of %q does not change the text", change.file, change.new, change.old)
		}
	}
}

func TestFile_Resolved(t *testing.T) {
	t.Run("values are hidden", func(t *testing.T) {
		dir := resolvable(t)
		got := resolve(t, dir)
		for _, value := range []string{"hello", "secret-of-"} {
			if strings.Contains(got, value) {
				t.Errorf("the value %s... is in\n%s", value, got)
			}
		}
		if one, two := valueOf(got, "A", 0), valueOf(got, "A", 1); one == "" || two == "" || one == two {
			t.Errorf("two values are %q and %q", one, two)
		}
	})
	t.Run("name is in the HMAC", func(t *testing.T) {
		t.Setenv(owner.SecretVariable, filepath.Join(t.TempDir(), "secret"))
		var r renderer
		if a := r.hideValue("A", "1"); a == r.hideValue("B", "1") || a == r.hideValue("A", "2") || a != r.hideValue("A", "1") || r.err != nil {
			t.Errorf("%q, %v", a, r.err)
		}
	})
	t.Run("another secret", func(t *testing.T) {
		dir := resolvable(t)
		t.Setenv(owner.SecretVariable, filepath.Join(t.TempDir(), "secret"))
		was := resolve(t, dir)
		t.Setenv(owner.SecretVariable, filepath.Join(t.TempDir(), "secret"))
		if resolve(t, dir) == was {
			t.Error("the values could be guessed without the secret")
		}
	})
	t.Run("no secret", func(t *testing.T) {
		dir := resolvable(t)
		t.Setenv(owner.SecretVariable, dir)
		f, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
		if err == nil {
			_, err = f.Resolved()
		}
		if !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("got %v", err)
		}
	})
}

// valueOf returns the replacement of the nth value of a variable.
func valueOf(text, name string, n int) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+": hmac-sha256:"); ok {
			if n--; n < 0 {
				return value
			}
		}
	}
	return ""
}
