package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/fumehood/fumehood/internal/owner/reaper/early"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// ownersFile is the variable with the path of a file. Each fumehood that a test starts records its identity there. The
// identity is on all objects that it creates in a daemon.
const ownersFile = "FUMEHOOD_TEST_OWNERS"

// TestMain makes this test binary act as fumehood when it is started under that name.
func TestMain(m *testing.M) {
	docker.RunReaper()
	testscript.Main(m, map[string]func(){"fumehood": func() {
		if err := signOwners(os.Getenv(ownersFile)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Exit(Main(context.Background(), os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}})
}

func signOwners(file string) error {
	self, err := owner.Self()
	if err != nil || file == "" {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, self)
	return err
}

// connect connects to the daemon and checks that it answers.
var connect = sync.OnceValues(func() (*engine.Client, error) {
	c, err := composesdk.Connect(context.Background(), composesdk.Options{})
	if err != nil {
		return nil, err
	}
	err = c.Engine.Connect(context.Background())
	return c.Engine, err
})

// needDocker skips the test if no Engine answers, or fails it if the tier requires one.
func needDocker(t *testing.T) *engine.Client {
	t.Helper()
	tier.NeedDocker(t)
	e, err := connect()
	if err == nil {
		return e
	}
	tier.Missing(t, tier.Quick, err)
	return nil
}

// environment returns the environment of fumehood in tests. It has this process's variables that locate the daemon;
// everything else points to folders below dir.
func environment(dir string) []string {
	env := []string{
		"HOME=" + filepath.Join(dir, "home"),
		"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"),
		"XDG_STATE_HOME=" + filepath.Join(dir, "state"),
		"FUMEHOOD_IMAGE=fumehood-test/busybox",
		ownersFile + "=" + filepath.Join(dir, "owners"),
	}
	if file, err := owner.SecretFile(); err == nil { // the guest's volume is shared with other tests
		env = append(env, owner.SecretVariable+"="+file)
	}
	dockerConfig := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); err == nil && dockerConfig == "" {
		dockerConfig = filepath.Join(home, ".docker")
	}
	env = append(env, "DOCKER_CONFIG="+dockerConfig)
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "XDG_RUNTIME_DIR", "PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// owners returns the identities that were recorded below dir.
func owners(dir string) ([]string, error) {
	f, err := os.Open(filepath.Join(dir, "owners"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	return all, lines.Err()
}

// objectsOf returns the objects that programs run with dir have created, without caches.
func objectsOf(ctx context.Context, e *engine.Client, dir string) ([]engine.Object, error) {
	ids, err := owners(dir)
	if err != nil {
		return nil, err
	}
	var objects []engine.Object
	for _, id := range ids {
		found, err := e.Objects(ctx, owner.LabelOwner+"="+id)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if o.Labels[owner.LabelCache] == "" || o.Kind == engine.Container {
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

// leftovers returns what is left of everything started with dir, and removes it from the daemon.
func leftovers(ctx context.Context, dir string) ([]string, error) {
	var left []string
	folders, err := filepath.Glob(filepath.Join(dir, "state", "fumehood", "[ln]*", "*")) // local, native
	if err != nil {
		return nil, err
	}
	for _, f := range folders {
		left = append(left, "folder "+f)
	}
	e, err := connect()
	if err != nil {
		return left, nil // without a daemon, nothing can be left there
	}
	objects, err := objectsOf(ctx, e, dir)
	for _, o := range objects {
		left = append(left, string(o.Kind)+" "+o.Name)
		if rerr := e.Remove(ctx, o); rerr != nil {
			return left, rerr
		}
	}
	return left, err
}

// program prepares a run of fumehood with its own environment. The test fails if it leaves anything behind.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd = exec.CommandContext(t.Context(), "fumehood", args...)
	cmd.Env = environment(dir)
	cmd.Dir = dir
	t.Cleanup(func() {
		left, err := leftovers(context.WithoutCancel(t.Context()), dir)
		if err != nil {
			t.Error(err)
		}
		for _, l := range left {
			t.Errorf("left behind: %s", l)
		}
	})
	return cmd, dir
}
