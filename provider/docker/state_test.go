package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
)

func TestState_projectFile(t *testing.T) {
	t.Parallel()
	project := filepath.Join(t.TempDir(), "project.yaml")
	if err := os.WriteFile(project, []byte("services: {default: {image: "+busybox+", command: [sleep, infinity], environment: {WORD: a$$b}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		opts docker.Options
		spec fumehood.Spec
	}{
		"of an image":           {spec: fumehood.Spec{Image: busybox, Env: map[string]string{"WORD": "a$b"}}},
		"without sockets":       {docker.Options{NoSockets: true}, fumehood.Spec{Image: busybox, Env: map[string]string{"WORD": "a$b"}}},
		"with the engine alone": {docker.Options{Transport: docker.TransportEngine}, fumehood.Spec{Image: busybox, Env: map[string]string{"WORD": "a$b"}}},
		"of a project":          {spec: fumehood.Spec{Compose: &fumehood.Compose{Files: []string{project}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.opts.StateDir = t.TempDir()
			p := newProvider(t, c.opts)
			sb := start(t, p, c.spec)
			state, err := dockertest.Engine(t).Inspect(t.Context(), sb.ServiceInfo().Container)
			if err != nil {
				t.Fatal(err)
			}
			file := state.Labels["com.docker.compose.project.config_files"]
			if want := filepath.Join(c.opts.StateDir, sb.Info().Name, "compose.yaml"); file != want {
				t.Fatalf("the label says %q, want %q", file, want)
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("got %v, %v", info, err)
			}
			text, err := os.ReadFile(file)
			for _, part := range []string{"name: " + sb.Info().Name + "\n", "image: " + busybox + "\n", "WORD: a$$b\n", "fumehood.owner: "} {
				if err != nil || !strings.Contains(string(text), part) {
					t.Errorf("%q missing in the file: %v, %s", part, err, text)
				}
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := names(t, c.opts.StateDir); len(got) != 0 {
				t.Errorf("left: %q", got)
			}
		})
	}
}

func TestState_keptFolder(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p := newProvider(t, docker.Options{StateDir: state})
	sb := start(t, p, fumehood.Spec{Image: busybox, Keep: true})
	name := sb.Info().Name
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, filepath.Join(state, name)); !slices.Contains(got, "compose.yaml") {
		t.Errorf("there is %q", got)
	}
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{name}}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, state); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func TestState_staleFolder(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p := newProvider(t, docker.Options{StateDir: state})
	lay := func(name string, by owner.ID, kept bool) string {
		t.Helper()
		folder, err := owner.MakeFolder(state, name, kept)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "owner"), []byte(by.String()), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return folder
	}
	self, err := owner.Self()
	if err != nil {
		t.Fatal(err)
	}
	dead := self
	dead.Start++
	for name, c := range map[string]struct {
		owner      owner.ID
		kept, over bool
	}{
		"fumehood-test-dead": {dead, false, true}, "fumehood-test-kept": {self, true, true}, "fumehood-test-alive": {self, false, false},
	} {
		folder := lay(name, c.owner, c.kept)
		sb := start(t, p, fumehood.Spec{Name: name, Image: busybox})
		if got := sh(t, sb, "echo works"); got != "works" {
			t.Errorf("%s: got %q", name, got)
		}
		if over := slices.Contains(names(t, folder), "compose.yaml"); over != c.over {
			t.Errorf("%s: folder taken over: %t", name, over)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if there := slices.Contains(names(t, state), name); there == c.over {
			t.Errorf("%s: its folder is there: %t", name, there)
		}
	}
	// The folder of a kept sandbox that exists is not replaced.
	kept := start(t, p, fumehood.Spec{Name: "fumehood-test-there", Image: busybox, Keep: true})
	if err := kept.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.Cleanup(context.WithoutCancel(t.Context()), provider.CleanupOptions{Names: []string{"fumehood-test-there"}}); err != nil {
			t.Error(err)
		}
	})
	if _, err := p.Start(t.Context(), fumehood.Spec{Name: "fumehood-test-there", Image: busybox}); err == nil {
		t.Error("two of a name")
	}
	if got := names(t, filepath.Join(state, "fumehood-test-there")); !slices.Contains(got, "compose.yaml") {
		t.Errorf("left in its folder: %q", got)
	}
}
