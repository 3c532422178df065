package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestCompareSlopCodeBench_docs(t *testing.T) {
	page, err := os.ReadFile("../../docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| key | SlopCodeBench | Fumehood |\n|---|---|---|\n"
	for _, d := range differences {
		want += "| `" + d.key + "` | " + d.docker + " | " + d.fumehood + " |\n"
	}
	if !strings.HasSuffix(string(page), "\n"+want) {
		t.Errorf("docs/spec.md does not end with this table:\n%s", want)
	}
}

func TestCompareSlopCodeBench(t *testing.T) {
	all := "docker.image docker.network docker.user setup.login_shell commands.command commands.entry_file snapshot.ignore_globs snapshot.archive_save_dir limits"
	for name, c := range map[string]struct {
		text string
		want string // the keys
	}{
		"minimal docker": {"type: docker\ndocker: {image: i}", all},
		"nulls":          {"type: docker\ndocker: {image: i, network: null}\nsnapshot: {keep_globs: ~, ignore_globs: ~}", all},
		"minimal local":  {"type: local", "type commands.command commands.entry_file snapshot.ignore_globs snapshot.archive_save_dir"},
		"all keys": {
			`type: docker
docker: {image: i, network: bridge, user: nobody, extra_mounts: {a: /a, b: {bind: /b, mode: ro}}}
setup: {login_shell: true}
commands: {command: c, entry_file: e}
snapshot: {ignore_globs: [], archive_save_dir: a}
limits: {memory: none, pids: none}`, "docker.image snapshot.archive_save_dir",
		},
		"values": {
			`type: docker
docker: {image: i, build: {}, network: host, mount_workspace: false, user: nobody, extra_mounts: {a: {bind: /a}, b: {bind: /b, mode: rw}, /c: /c}}
environment: {include_os_env: true}
setup: {resume_commands: [], commands: [a]}
commands: {command: c, entry_file: e}
snapshot: {keep_globs: [], ignore_globs: [a], compression: bz2}
limits: {memory: 1g, pids: 100}`,
			"docker.network docker.extra_mounts docker.extra_mounts docker.extra_mounts docker.mount_workspace environment.include_os_env " +
				"setup.resume_commands setup.login_shell setup.timeout snapshot.keep_globs snapshot.ignore_globs snapshot.compression snapshot.archive_save_dir",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "env.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			e, found, err := CompareSlopCodeBench(file)
			var keys []string
			for _, d := range found {
				keys = append(keys, d.Key)
				present := strings.Contains(c.text, d.Key[strings.LastIndex(d.Key, ".")+1:]+": ") && !strings.Contains(c.text, "~")
				if present != (d.Line > 0) && name != "nulls" {
					t.Errorf("%s has line %d", d.Key, d.Line)
				}
			}
			if got := strings.Join(keys, " "); err != nil || e == nil || got != c.want {
				t.Errorf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
	if _, _, err := CompareSlopCodeBench(filepath.Join(t.TempDir(), "nope.yaml")); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}
