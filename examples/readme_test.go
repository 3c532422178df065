package examples

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The program in the README is compiled as it stands there, but for the image, in a folder of this module
// that exists for the compiler only.
func TestTheProgramInTheReadmeRuns(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 {
		t.Fatalf("the README has %d Go programs, not one", len(blocks))
	}
	code := blocks[0][1]
	const stated = `"python:3.12-slim"`
	if !strings.Contains(code, stated) {
		t.Fatalf("the program does not name the image %s", stated)
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "readme")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(code, stated, `"`+image+`"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Abs("readme/main.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {there: source}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", program, "./readme").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	needDocker(t)
	cmd, stdout, stderr := command(t, program)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	want := "exited with code 0: 42\n"
	if stdout.String() != want {
		t.Errorf("it prints %q, want %q", stdout, want)
	}
	if !strings.Contains(string(page), "It prints `"+strings.TrimSpace(want)+"`") {
		t.Errorf("the README does not say that it prints %q", want)
	}
}
