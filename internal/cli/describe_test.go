package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// upWith runs `fumehood up` with a configuration file, and returns its options without starting a sandbox.
func upWith(t *testing.T, config string, args ...string) (opts upOptions, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &commandLine{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &out}, settings: settings{
		env: func(string) (string, bool) { return "", false }, configFile: file,
	}}
	root := a.rootCommand()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "up" {
			root.RemoveCommand(cmd)
		}
	}
	root.AddCommand(a.newUpCommand(func(_ context.Context, _ *commandLine, o upOptions) error {
		opts = o
		return nil
	}))
	root.SetArgs(append([]string{"up"}, args...))
	err = root.ExecuteContext(t.Context())
	return opts, err
}

// The rule for an image in the file is that of run.
func TestUp_localImage(t *testing.T) {
	for want, args := range map[string][]string{
		"":          {"--provider", "local"},
		"from-flag": {"--provider", "local", "--image", "from-flag"},
		"from-file": {},
	} {
		if opts, err := upWith(t, "image: from-file\n", args...); err != nil || opts.spec.Image != want {
			t.Errorf("%q: image %q, %v", args, opts.spec.Image, err)
		}
	}
}

// A folder that describes nothing does not get the default image.
func TestDescribe_emptyFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := (&commandLine{provider: "docker"}).describe(&projectFlags{files: []string{dir}}, fumehood.Spec{})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "looked for compose.yaml, ") || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %+v, %v", d, err)
	}
}
