package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runWith is parsed for `fumehood run`.
func runWith(t *testing.T, config string, env map[string]string, args ...string) (runOptions, *commandLine, error) {
	t.Helper()
	return parsed(t, config, env, append([]string{"run"}, args...)...)
}

// parsed parses the arguments of `fumehood run` or `fumehood up`, with a configuration file and variables. It returns
// the options without starting a sandbox; of up only the spec.
func parsed(t *testing.T, config string, env map[string]string, args ...string) (opts runOptions, a *commandLine, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if config != "" {
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	a = &commandLine{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &out}, settings: settings{
		env:        func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		configFile: file,
	}}
	run := a.newRunCommand(func(_ context.Context, _ *commandLine, o runOptions) error {
		opts = o
		return nil
	})
	up := a.newUpCommand(func(_ context.Context, _ *commandLine, o upOptions) error {
		opts.spec = o.spec
		return nil
	})
	root := a.rootCommand()
	for _, cmd := range root.Commands() {
		if cmd.Name() == run.Name() || cmd.Name() == up.Name() {
			root.RemoveCommand(cmd)
		}
	}
	root.AddCommand(run, up)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return opts, a, err
}

func TestSettings_precedence(t *testing.T) {
	const config = "image: from-file\nuser: filer\nmemory: 64MiB\n"
	env := map[string]string{"FUMEHOOD_IMAGE": "from-variable", "FUMEHOOD_USER": "variabler"}
	for _, c := range []struct {
		name        string
		config      string
		env         map[string]string
		args        []string
		image, user string
		memory      int64
	}{
		{"nothing said", "", nil, nil, "", "", 0},
		{"the file", config, nil, nil, "from-file", "filer", 64 << 20},
		{"a variable over the file", config, env, nil, "from-variable", "variabler", 64 << 20},
		{"a flag over both", config, env, []string{"--image", "from-flag"}, "from-flag", "variabler", 64 << 20},
		{"an empty flag is said too", config, env, []string{"--image="}, "", "variabler", 64 << 20},
		{"an empty variable too", config, map[string]string{"FUMEHOOD_USER": ""}, nil, "from-file", "", 64 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts, _, err := runWith(t, c.config, c.env, append(c.args, "true")...)
			if err != nil {
				t.Fatal(err)
			}
			if opts.spec.Image != c.image || opts.spec.User != c.user || opts.spec.Limits.Memory != c.memory {
				t.Errorf("image %q, user %q, memory %d", opts.spec.Image, opts.spec.User, opts.spec.Limits.Memory)
			}
		})
	}
}

func TestSettings_global(t *testing.T) {
	_, a, err := runWith(t, "provider: local\nstrict-prereqs: true\n", map[string]string{"FUMEHOOD_STRICT_PREREQS": "false"}, "true")
	if err != nil {
		t.Fatal(err)
	}
	if a.provider != "local" || a.strict {
		t.Errorf("provider %q, strict %v", a.provider, a.strict)
	}
}

// An image in the file is ignored by the local provider, which has none. An explicit --image is not.
func TestSettings_localImage(t *testing.T) {
	opts, _, err := runWith(t, "image: from-file\n", nil, "--provider", "local", "true")
	if err != nil || opts.spec.Image != "" {
		t.Errorf("image %q, %v", opts.spec.Image, err)
	}
	opts, _, err = runWith(t, "image: from-file\n", nil, "--provider", "local", "--image", "from-flag", "true")
	if err != nil || opts.spec.Image != "from-flag" {
		t.Errorf("image %q, %v", opts.spec.Image, err)
	}
}

func TestSettings_errors(t *testing.T) {
	for _, c := range []struct {
		name, config string
		env          map[string]string
		want         string
	}{
		{"no such setting", "image: a\nimgae: b\n", nil, `config.yaml:2: there is no setting "imgae", only allow-read, allow-unenforced-limits, cpus, default-image, disk, egress, guest-image, image,`},
		{"what is no setting but a flag", "json: true\n", nil, `config.yaml:1: there is no setting "json"`},
		{"a list for a value", "user:\n  - a\n", nil, "config.yaml:2: user: a plain value was expected"},
		{"no mapping", "- image\n", nil, "config.yaml:1: a mapping of settings to values was expected"},
		{"no YAML", "image: [\n", nil, "config.yaml: yaml: line "},
		{"a bad value", "\ntimeout: soon\n", nil, `config.yaml:2: timeout: `},
		{"a bad variable", "", map[string]string{"FUMEHOOD_CPUS": "many"}, "variable FUMEHOOD_CPUS: "},
		{"a relative path", "allow-read: /a:b\n", nil, `config.yaml:1: allow-read: "b" is not an absolute path`},
		{"twice", "image: a\nimage: b\n", nil, `config.yaml:2: "image" is set twice`},
		{"two documents", "image: a\n---\nimage: b\n", nil, "config.yaml:3: one document was expected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := runWith(t, c.config, c.env, "true")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if code := exitCode(err); code != exitUsage {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func TestSettings_empty(t *testing.T) {
	for _, config := range []string{"# nothing\n", "\n", "---\n"} {
		if _, _, err := runWith(t, config, nil, "true"); err != nil {
			t.Errorf("%q: %v", config, err)
		}
	}
}

func TestSettings_lists(t *testing.T) {
	const config = "allow-read: /of-file:/more\n"
	for _, c := range []struct {
		name, config string
		env          map[string]string
		args         []string
		want         string
	}{
		{"file", config, nil, nil, "[/of-file /more]"},
		{"variable over file", config, map[string]string{"FUMEHOOD_ALLOW_READ": "/a b::../c"}, nil, "[/a b ../c]"},
		{"empty variable", "", map[string]string{"FUMEHOOD_ALLOW_READ": ""}, nil, "[]"},
		{"flag over both", config, map[string]string{"FUMEHOOD_ALLOW_READ": "/a"}, []string{"--allow-read", "/x:y", "--allow-read", "/z"}, "[/x:y /z]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "compose.yaml")
			if err := os.WriteFile(file, []byte("services: {a: {image: b}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			opts, _, err := runWith(t, c.config, c.env, append([]string{"-f", file}, append(c.args, "true")...)...)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(opts.spec.Compose.AllowRead); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Allowed paths in the settings are ignored by commands that read no file. An explicit flag is an error.
func TestSettings_lists_unused(t *testing.T) {
	if _, _, err := runWith(t, "allow-read: /a\n", nil, "true"); err != nil {
		t.Error(err)
	}
	if _, _, err := runWith(t, "", nil, "--allow-read", "/a", "true"); err == nil {
		t.Error("--allow-read without a file: no error")
	}
}

// A relative folder could be one of the code under test.
func TestConfigFile_relative(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "config")
	if got, want := configFile(), filepath.Join(home, ".config", "fumehood", "config.yaml"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
