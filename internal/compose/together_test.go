package compose

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

// All files that may not be read are reported at once, with what allows them, as far as readable files name them.
func TestLoad_outsideTogether(t *testing.T) {
	t.Parallel()
	dir := filetest.Lay(t, map[string]string{
		"out/a.yaml": "services: {a: {image: i}}\n", "out/b.yaml": "services: {b: {image: i}}\n", "out/c.yaml": "services: {c: {image: i}}\n",
		"project/inner.yaml": "include: [../out/b.yaml]\n",
		"project/compose.yaml": `include: [../out/a.yaml, inner.yaml]
services:
  own:
    extends: {file: ../out/c.yaml, service: c}
`,
	})
	files := fumehood.Compose{Files: []string{filepath.Join(dir, "project", "compose.yaml")}}
	_, err := Load(t.Context(), "box", files)
	if err == nil {
		t.Fatal("it was loaded")
	}
	out := filepath.Join(dir, "out")
	want := "all 3 paths are allowed by: --allow-read " + out + "/a.yaml --allow-read " + out + "/b.yaml --allow-read " + out + "/c.yaml"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%q is missing:\n%v", want, err)
	}
	files.AllowRead = []string{out}
	if _, err := Load(t.Context(), "box", files); err != nil {
		t.Error(err)
	}
}

// An error has the problems of all checks, in the order of the file.
func TestLoad_together(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside.env")
	if err := os.WriteFile(outside, []byte("A=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filetest.Lay(t, map[string]string{"invalid.env": "A='unended\n", "compose.yaml": `x-fumehood:
  egress: lan
  keep_ports: 7
  unknown: 1
services:
  a:
    image: i
    env_file: ` + outside + `
    privileged: true
    x-default: true
  b:
    image: i
    env_file: none.env
    label_file: none.labels
    x-default: true
    x-local: maybe
  c:
    image: i
    env_file: invalid.env
    build: {context: ., platforms: [linux/amd64, linux/arm64], secrets: [s]}
secrets:
  s: {external: true}
`})
	_, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
	if !errors.Is(err, fumehood.ErrFile) {
		t.Fatal(err)
	}
	rest := err.Error()
	for _, want := range []string{
		"compose.yaml:2: x-fumehood.egress: wanted", "compose.yaml:3: x-fumehood.keep_ports: wanted true or false", "compose.yaml:4: x-fumehood.unknown: unknown setting",
		`compose.yaml:8: service "a": ` + outside + " is outside the project's folder",
		"compose.yaml:9: services.a.privileged: ",
		`compose.yaml:13: service "b": `, "none.env does not exist",
		`compose.yaml:14: service "b": `, "none.labels does not exist",
		"compose.yaml:15: services.b.x-default: service a has it too",
		"compose.yaml:16: services.b.x-local: wanted true or false",
		`compose.yaml:19: service "c": `, "invalid.env",
		"compose.yaml:20: services.c.build.platforms: ", "compose.yaml:20: services.c.build.secrets: s is external",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q is missing, or not in order:\n%v", want, err)
		}
		rest = after
	}
}
