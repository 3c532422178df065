package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestConfig_refused runs the program on a file with one instance of every rejected key.
func TestConfig_refused(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("../compose/testdata/refused.yaml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cmd, dir := program(t, "config", "-f", file)
	cmd.Env = append(cmd.Env, "DOCKER_HOST=unix://"+filepath.Join(dir, "no.sock"))
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitUsage || out.Len() > 0 {
		t.Fatalf("%v\n%s%s", err, &out, &complaints)
	}
	listed := map[string]bool{}
	last := 0
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(file)+`:(\d+): (\S+): (.+)`).FindAllStringSubmatch(complaints.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		if n < last {
			t.Errorf("line %d comes after line %d", n, last)
		}
		last = n
		listed[fmt.Sprint(n, " ", m[2])] = true
	}
	n, wanted := 0, 0
	for line := range strings.Lines(string(content)) {
		n++
		_, key, found := strings.Cut(strings.TrimSpace(line), "# ")
		if !found || n < 3 {
			continue
		}
		wanted++
		if !listed[fmt.Sprint(n, " ", key)] {
			t.Errorf("line %d, %s: not in the errors", n, key)
		}
	}
	if wanted < 50 || len(listed) < wanted {
		t.Errorf("%d errors, want at least %d, and at least 50 keys in the file", len(listed), wanted)
	}
	if t.Failed() {
		t.Log(complaints.String())
	}
}

// TestConfig_escapes checks that values of a file do not reach the terminal as escape sequences.
func TestConfig_escapes(t *testing.T) {
	t.Parallel()
	cmd, dir := program(t, "config")
	text := "services: {a: {image: i, container_name: \"x\\e]0;title\\a\"}}\n"
	if err := os.WriteFile(filepath.Join(cmd.Dir, "compose.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "DOCKER_HOST=unix://"+filepath.Join(dir, "no.sock"))
	out, err := cmd.CombinedOutput()
	if bytes.ContainsAny(out, "\x1b\a") || !bytes.Contains(out, []byte(`x\x1b]0;title\x07`)) {
		t.Errorf("%v\n%q", err, out)
	}
}
