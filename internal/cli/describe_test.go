package cli

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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

// What flags set overrides an environment spec: no field of a sandbox is lost.
func TestDescribe_overEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env.yaml")
	if err := os.WriteFile(file, []byte("type: docker\nname: e\ndocker: {image: from-file, workdir: /from-file}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := fumehood.Spec{
		Name: "n", Image: "i", Env: map[string]string{"A": "b"}, User: "1", Dir: "/d", Network: fumehood.Network{Mode: fumehood.NetworkBridge},
		Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 50, Disk: 1 << 20}, ShmSize: 1 << 20, Tmpfs: []string{"/t"},
		Mounts: []fumehood.Mount{{Host: filepath.Dir(file), Container: "/m"}}, Keep: true, TTL: time.Hour,
	}
	unflagged := []string{"Compose", "Images", "Runtime", "Seccomp", "Ports", "AllowUnsafe", "Binary", "Labels", "ConfigFile", "Journal", "Logger"}
	d, err := (&commandLine{provider: "docker", log: slog.New(slog.DiscardHandler)}).describe(&projectFlags{files: []string{file}}, flags)
	if err != nil {
		t.Fatal(err)
	}
	got := reflect.ValueOf(d.Spec)
	for field, value := range reflect.ValueOf(flags).Fields() {
		switch set := got.FieldByIndex(field.Index); {
		case slices.Contains(unflagged, field.Name):
		case value.IsZero():
			t.Errorf("%s: set it here, or name it as one without a flag", field.Name)
		case !reflect.DeepEqual(set.Interface(), value.Interface()):
			t.Errorf("%s is %v, want %v", field.Name, set, value)
		}
	}
}
