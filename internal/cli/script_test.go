package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// TestScript runs the scripts in testdata/script with the real program. Scripts that need a Docker Engine begin with a
// line that skips them if none answers. A script fails if its programs leave anything behind.
func TestScript(t *testing.T) {
	t.Parallel()
	provider := providerOf(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			cache, err := os.UserCacheDir()
			env.Setenv("PROVIDER", provider)
			env.Setenv("CACHE", cache)
			setUp(env)
			return err
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "docker":
				return dockerWorks()
			case "root":
				return os.Geteuid() == 0, nil
			case "sandboxes":
				return provider != "", nil
			case "native":
				return nativeWorks()
			}
			return false, fmt.Errorf("there is no condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"capture": capture,
			"lines":   lines,
			"bytes":   allBytes,
		},
	})
}

// providerOf returns the provider of the scripts that work with both, and loads its images. It is the native one, with
// which they take a fifth of the time, if it works here. In the tier all it is the docker one. It is empty if none works.
func providerOf(t *testing.T) string {
	t.Helper()
	docker, err := dockerWorks()
	if err != nil {
		t.Fatal(err)
	}
	if docker && tier.Of(t) == tier.All {
		return "docker"
	}
	if works, err := nativeWorks(); err != nil {
		t.Fatal(err)
	} else if works {
		p, err := native.New(t.Context(), native.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		testimages.Load(t, p, "fumehood-test/busybox", "fumehood-test/python")
		return "native"
	}
	if docker {
		return "docker"
	}
	return ""
}

func dockerWorks() (bool, error) {
	if testing.Short() {
		return false, nil
	}
	_, err := connect()
	if err != nil && os.Getenv(tier.Variable) != "" {
		return false, err
	}
	return err == nil, nil
}

func nativeWorks() (bool, error) {
	if native.CheckSupport() != nil {
		return false, nil
	}
	_, err := os.Stat(filepath.Join(testimages.Dir(), "busybox.tar"))
	if err != nil && os.Getenv(tier.Variable) != "" {
		return false, err
	}
	return err == nil, nil
}

func setUp(env *testscript.Env) {
	for _, kv := range environment(env.WorkDir) {
		if !strings.HasPrefix(kv, "PATH=") {
			env.Vars = append(env.Vars, kv)
		}
	}
	env.Vars = append(env.Vars, "IMAGES="+testimages.Dir())
	env.Defer(func() {
		left, err := leftovers(context.Background(), env.WorkDir)
		if err != nil || len(left) > 0 {
			// Not Fatal: a deferred function cannot stop the script, which may have failed already.
			env.T().Log("left behind:", strings.Join(left, ", "), err)
			env.T().(interface{ Fail() }).Fail()
		}
	})
}

// exits implements "exits CODE PROGRAM ARG...". It runs a program that must exit with the code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// capture implements "capture VARIABLE FILE REGEXP". It sets a variable to the match of the expression's first group.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: capture VARIABLE FILE REGEXP")
	}
	m := regexp.MustCompile(args[2]).FindStringSubmatch(ts.ReadFile(args[1]))
	if m == nil {
		ts.Fatalf("nothing in %s matches %s", args[1], args[2])
	}
	ts.Setenv(args[0], m[1])
}

// lines implements "lines N FILE". It checks the number of lines, not counting the warning about an old Engine.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines N FILE")
	}
	n := 0
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		if !strings.Contains(line, "lacks later fixes of its isolation") {
			n++
		}
	}
	if strconv.Itoa(n) != args[0] {
		ts.Fatalf("%s has %d lines, not %s", args[1], n, args[0])
	}
}

// allBytes implements "bytes FILE". It writes a file with all 256 bytes, ten thousand times.
func allBytes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: bytes FILE")
	}
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat(string(all[:]), 10_000)), 0o600))
}
