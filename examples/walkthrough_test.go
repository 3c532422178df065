package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWalkthrough checks that docs/session.md quotes the files and the output of examples/walkthrough exactly.
func TestWalkthrough(t *testing.T) {
	t.Parallel()
	needDocker(t)
	lookAt(t, "walkthrough")
	cmd, stdout, stderr := command(t, build(t, "walkthrough"))
	cmd.Dir = "walkthrough"
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), sharedSecret(t))
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	page, err := os.ReadFile("../docs/session.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{"```\n": stdout.String()}
	for language, file := range map[string]string{"yaml": "env.yaml", "go": "main.go"} {
		text, err := os.ReadFile(filepath.Join("walkthrough", file))
		if err != nil {
			t.Fatal(err)
		}
		blocks["```"+language+"\n"] = string(text)
	}
	for fence, text := range blocks {
		if !strings.Contains(string(page), fence+text+"```\n") {
			t.Errorf("docs/session.md does not quote this exactly:\n%s%s", fence, text)
		}
	}
}
