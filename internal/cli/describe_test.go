package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// The rule for an image in the file is that of run.
func TestUp_localImage(t *testing.T) {
	for want, args := range map[string][]string{
		"":          {"--provider", "local"},
		"from-flag": {"--provider", "local", "--image", "from-flag"},
		"from-file": {},
	} {
		if opts, _, err := parsed(t, "image: from-file\n", nil, append([]string{"up"}, args...)...); err != nil || opts.spec.Image != want {
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
