package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readmeOverlay writes a program to dir that runs the README's Go code, with only the image replaced. It returns a file
// for `go build -overlay`, which makes the program ./readme, a folder that exists only for the compiler.
func readmeOverlay(dir string) (string, error) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		return "", err
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 {
		return "", fmt.Errorf("the README has %d Go programs, want 1", len(blocks))
	}
	code := `package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
` + blocks[0][1] + `return nil
}
`
	const stated = `"python:3.12-slim"`
	if !strings.Contains(code, stated) {
		return "", fmt.Errorf("the program does not name the image %s", stated)
	}
	source, list := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(code, stated, `"`+image+`"`)), 0o600); err != nil {
		return "", err
	}
	there, err := filepath.Abs("readme/main.go")
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {there: source}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, overlay, 0o600)
}

func TestReadme_program(t *testing.T) {
	t.Parallel()
	if testing.Short() { // it is compiled, but not linked
		overlay, err := readmeOverlay(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-overlay", overlay, "./readme").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	needDocker(t)
	cmd, stdout, stderr := command(t, build(t, "readme"))
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	want := "exited 0 42\n"
	if stdout.String() != want {
		t.Errorf("it prints %q, want %q", stdout, want)
	}
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "It prints `"+strings.TrimSpace(want)+"`") {
		t.Errorf("the README does not say that it prints %q", want)
	}
}
