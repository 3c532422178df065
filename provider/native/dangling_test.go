//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
)

// What the targets of links lack is made in the sandbox, as in Docker, for working directories, volumes and mounts.
func TestProvider_Start_danglingLinks(t *testing.T) {
	t.Parallel()
	need(t)
	outside := filepath.Join(t.TempDir(), "outside")
	image := hostile{
		files: []layerFile{
			link("work", "/made/work"), link("escape", "../../../../.."+outside), link("loop", "loop"), link("vol", "made/../made/vol"),
			link("mnt", "/made/mnt"), link("conf", "made/conf"), link("run/under", "deeper"),
		},
		config: func(c *v1.Config) {
			c.WorkingDir, c.Volumes = "/work", map[string]struct{}{"/vol": {}, "/run/under/vol": {}}
		},
	}
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "file"), []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	mounts := []fumehood.Mount{{Host: host, Container: "/mnt/dir"}, {Host: filepath.Join(host, "file"), Container: "/conf"}}
	for name, opts := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ref := image.provider(t, opts(t))
			sb := start(t, p, fumehood.Spec{Image: ref, Mounts: mounts})
			const look = "pwd -P; ls -d /made/vol /run/deeper/vol; cat /made/mnt/dir/file /made/conf; stat -c %u:%g:%a /made/work"
			const want = "/made/work\n/made/vol\n/run/deeper/vol\nof the hostof the host0:0:755"
			if got := run(t, sb, look); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			for dir, want := range map[string]string{"/work/x": "/made/work/x", "/escape": outside, "/escape/y": outside + "/y"} {
				if got := run(t, start(t, p, fumehood.Spec{Image: ref, Dir: dir}), "pwd -P"); got != want {
					t.Errorf("directory %s: got %s, want %s", dir, got, want)
				}
			}
			_, err := p.Start(t.Context(), fumehood.Spec{Image: ref, Dir: "/loop/x"})
			conformance.WantError(t, err, fumehood.ErrConfig)
			if _, err := os.Lstat(outside); !os.IsNotExist(err) {
				t.Errorf("something was made on the host: %v", err)
			}
		})
	}
}
