package envimage

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestTags(t *testing.T) {
	build := &spec.Build{}
	for _, c := range []struct {
		env  spec.Environment
		want []string
	}{
		{spec.Environment{Type: "docker", Name: "py", Docker: spec.Docker{Image: "python:3"}}, []string{"fumehood:py"}},
		{spec.Environment{Type: "docker", Name: "py", Docker: spec.Docker{Build: build}}, []string{"fumehood:py"}},
		{spec.Environment{Type: "docker", Name: "py", Docker: spec.Docker{Image: "mine", Build: build}}, []string{"fumehood:py"}},
		{spec.Environment{Type: "docker", Name: "py", AllowUnsafe: true, Docker: spec.Docker{Image: "mine", Build: build}}, []string{"mine", "fumehood:py"}},
		{spec.Environment{Type: "docker", Name: "py", Docker: spec.Docker{Image: "fumehood:mine", Build: build}}, []string{"fumehood:py"}},
		{spec.Environment{Type: "docker", Name: "py", Docker: spec.Docker{Image: "fumehood:py", Build: build}}, []string{"fumehood:py"}},
		{spec.Environment{Type: "docker", Docker: spec.Docker{Image: "mine", Build: build}}, []string{"fumehood:image-" + image.HashOf("mine")[:12]}},
		{spec.Environment{Type: "docker", AllowUnsafe: true, Docker: spec.Docker{Image: "mine", Build: build}}, []string{"mine"}},
		{spec.Environment{Type: "docker", Docker: spec.Docker{Image: "python:3"}}, nil},
		{spec.Environment{Type: "docker", Name: "py", Docker: spec.Docker{Image: "fumehood:py"}}, nil},
		{spec.Environment{Type: "local", Name: "py"}, nil},
	} {
		got, err := Tags(&c.env)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) || err != nil && !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%+v: got %q, %v", c.env.Docker, got, err)
		}
	}
}

// inputsOf returns the hash of an environment with a build whose context is files.
func inputsOf(t *testing.T, e spec.Environment, files, ids map[string]string) string {
	t.Helper()
	if files != nil {
		e.File = filepath.Join(filetest.Lay(t, files), "env.yaml")
	}
	p, err := newPlan(t.Context(), &e)
	if err != nil {
		t.Fatal(err)
	}
	return p.inputs(ids)
}

func TestPlan_inputs(t *testing.T) {
	env := func(change func(*spec.Environment)) spec.Environment {
		e := spec.Environment{Type: "docker", Name: "n", Docker: spec.Docker{Build: &spec.Build{Args: map[string]string{"A": "1"}}}}
		e.Environment.Env = map[string]string{"K": "v"}
		if change != nil {
			change(&e)
		}
		return e
	}
	files := func(more ...string) map[string]string {
		all := map[string]string{"Dockerfile": "FROM a", "other": "FROM a", "src/x": "x", ".dockerignore": "*.log\nlogs\n!logs/keep\n", "y.log": "1", "logs/z": "1"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	ids := map[string]string{"a": "sha256:1"}
	plain := inputsOf(t, env(nil), files(), ids)
	for name, same := range map[string]string{
		"another folder":             inputsOf(t, env(nil), files(), ids),
		"a file that is ignored":     inputsOf(t, env(nil), files("y.log", "2", "logs/more", "3"), ids),
		"what sessions do otherwise": inputsOf(t, env(func(e *spec.Environment) { e.Setup.Commands = []string{"x"}; e.Docker.Network = "bridge" }), files(), ids),
		"the host's variables":       inputsOf(t, env(func(e *spec.Environment) { e.Environment.IncludeOSEnv = true }), files(), ids),
	} {
		if same != plain {
			t.Errorf("%s changes the hash", name)
		}
	}
	seen := map[string]string{plain: "nothing"}
	for name, other := range map[string]string{
		"a base image":           inputsOf(t, env(nil), files(), map[string]string{"a": "sha256:2"}),
		"a file":                 inputsOf(t, env(nil), files("src/x", "y"), ids),
		"one more file":          inputsOf(t, env(nil), files("src/y", ""), ids),
		"a file beside ignored":  inputsOf(t, env(nil), files("logs/keep", ""), ids),
		"a link":                 inputsOf(t, env(nil), files("link", "-> src/x"), ids),
		"the Dockerfile":         inputsOf(t, env(nil), files("Dockerfile", "FROM a\nRUN x"), ids),
		"the Dockerfile's name":  inputsOf(t, env(func(e *spec.Environment) { e.Docker.Build.Dockerfile = "other" }), files(), ids),
		"an argument":            inputsOf(t, env(func(e *spec.Environment) { e.Docker.Build.Args["A"] = "2" }), files(), ids),
		"a variable":             inputsOf(t, env(func(e *spec.Environment) { e.Environment.Env["K"] = "w" }), files(), ids),
		"a variable for another": inputsOf(t, env(func(e *spec.Environment) { e.Environment.Env = map[string]string{"Kv": ""} }), files(), ids),
		"the working directory":  inputsOf(t, env(func(e *spec.Environment) { e.Docker.Workdir = "/w" }), files(), ids),
		"the user":               inputsOf(t, env(func(e *spec.Environment) { e.Docker.User = "1" }), files(), ids),
	} {
		if before, ok := seen[other]; ok {
			t.Errorf("%s has the same hash as %s", name, before)
		}
		seen[other] = name
	}
}

func TestPlan_ignored(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{"Dockerfile": "FROM a", ".dockerignore": "secret", "secret/link": "-> /etc"})
	e := spec.Environment{Type: "docker", Name: "n", File: filepath.Join(dir, "env.yaml"), Docker: spec.Docker{Build: &spec.Build{}}}
	if _, err := newPlan(t.Context(), &e); err != nil {
		t.Error(err)
	}
}

func TestPlan_errors(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		build spec.Build
		says  string
	}{
		"no Dockerfile":           {map[string]string{"x": ""}, spec.Build{}, "Dockerfile"},
		"a Dockerfile outside":    {map[string]string{"x": ""}, spec.Build{Dockerfile: "../Dockerfile"}, "contains .."},
		"a link to one outside":   {map[string]string{"Dockerfile": "-> /etc/hostname"}, spec.Build{}, "Dockerfile"},
		"a folder as Dockerfile":  {map[string]string{"Dockerfile/x": ""}, spec.Build{}, "not a regular file"},
		"no context":              {nil, spec.Build{Context: "none"}, "context"},
		"an absolute link":        {map[string]string{"Dockerfile": "FROM a", "l": "-> /etc/passwd"}, spec.Build{}, `the link "l" leads out of the folder, to "/etc/passwd"`},
		"a link that leads out":   {map[string]string{"Dockerfile": "FROM a", "d/l": "-> ../../x"}, spec.Build{}, `the link "d/l" leads out`},
		"a bad list":              {map[string]string{"Dockerfile": "FROM a", ".dockerignore": "[a"}, spec.Build{}, ".dockerignore"},
		"a Dockerfile of nothing": {map[string]string{"Dockerfile": ""}, spec.Build{}, "Dockerfile"},
	} {
		e := spec.Environment{Type: "docker", Name: "n", File: filepath.Join(filetest.Lay(t, c.files), "env.yaml"), Docker: spec.Docker{Build: &c.build}}
		_, err := newPlan(t.Context(), &e)
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPlan_nulByte(t *testing.T) {
	e := spec.Environment{Type: "docker", Name: "n", Docker: spec.Docker{Image: "a"}}
	e.Environment.Env = map[string]string{"K": "a\x00b"}
	if _, err := newPlan(t.Context(), &e); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

func TestEnvironment_values(t *testing.T) {
	made := environment(map[string]string{"B": "$x\n'\"", "A b": ""}, "/w d", "1:2", "5e1f")
	want := "ARG FUMEHOOD_DIR FUMEHOOD_NAME_0 FUMEHOOD_VALUE_0 FUMEHOOD_NAME_1 FUMEHOOD_VALUE_1 FUMEHOOD_OF=5e1f\n" +
		"ENV ${FUMEHOOD_NAME_0}=${FUMEHOOD_VALUE_0} ${FUMEHOOD_NAME_1}=${FUMEHOOD_VALUE_1}\n" +
		"COPY --chown=1:2 [\"workdir/\", \"${FUMEHOOD_DIR}/\"]\nWORKDIR ${FUMEHOOD_DIR}\n"
	if made.on != want {
		t.Errorf("got %s", made.on)
	}
	args := made.Args
	if args["FUMEHOOD_NAME_0"] != "A b" || args["FUMEHOOD_VALUE_1"] != "$x\n'\"" || args["FUMEHOOD_DIR"] != "/w d" || len(args) != 5 {
		t.Errorf("got %q", args)
	}
}

func TestSetup_failFast(t *testing.T) {
	e := &spec.Environment{Type: "docker", Setup: spec.Setup{Commands: []string{"cd x"}, EvalCommands: []string{"make"}, ResumeCommands: []string{"never"}}}
	if got, want := setup(e), "case $HOME/ in /workspace/*) export HOME=/tmp ;; esac\ncd x\nmake\nexit 0\n"; got != want {
		t.Errorf("got %q", got)
	}
	e.Setup.FailFast, e.Environment.Env = true, map[string]string{"HOME": "/root"}
	const check = "case $? in 0) ;; *) exit $? ;; esac\n"
	if got, want := setup(e), "cd x\n"+check+"make\n"+check+"exit 0\n"; got != want {
		t.Errorf("got %q", got)
	}
	if got := setup(&spec.Environment{Setup: spec.Setup{FailFast: true}}); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestSubmissionPlan_inputs(t *testing.T) {
	e := spec.Environment{Type: "docker", Name: "n", Docker: spec.Docker{Image: "a"}}
	hash := func(e spec.Environment, base provider.Image, work, assets map[string]string) string {
		s := Submission{Workspace: filetest.Lay(t, work)}
		if assets != nil {
			s.Assets = filetest.Lay(t, assets)
		}
		p, err := newSubmissionPlan(t.Context(), &e, s, base)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.tag(); got != "fumehood:n-submission-"+p.inputs()[:12] {
			t.Errorf("the tag is %s", got)
		}
		return p.inputs()
	}
	base, work := provider.Image{ID: "1"}, map[string]string{"x": "1"}
	other := func(change func(*spec.Environment)) spec.Environment { o := e; change(&o); return o }
	hashes := []string{
		hash(e, base, work, nil),
		hash(e, provider.Image{ID: "2"}, work, nil),
		hash(e, provider.Image{ID: "1", User: "me"}, work, nil),
		hash(e, base, map[string]string{"x": "2"}, nil),
		hash(e, base, work, map[string]string{}),
		hash(e, base, work, map[string]string{"t": ""}),
		hash(other(func(o *spec.Environment) { o.Setup.EvalCommands = []string{"x"} }), base, work, nil),
		hash(other(func(o *spec.Environment) { o.Docker.Network = "bridge" }), base, work, nil),
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(hashes))); len(unique) != len(hashes) {
		t.Errorf("equal hashes: %q", hashes)
	}
	if hash(e, base, work, nil) != hashes[0] {
		t.Error("the same inputs have different hashes")
	}
}

func TestStateOf(t *testing.T) {
	now := time.Now()
	tagged, mark := []string{"t"}, provider.ImageMark{Environment: "n", Inputs: "i", Base: "b"}
	for name, c := range map[string]struct {
		image  provider.Image
		inputs string
		want   State
	}{
		"of the same inputs":           {provider.Image{Tags: tagged, Mark: mark}, "b", Current},
		"of others":                    {provider.Image{Tags: tagged, Mark: mark}, "c", Outdated},
		"with inputs that none knows":  {provider.Image{Tags: tagged, Mark: mark}, "", Unknown},
		"that was replaced":            {provider.Image{Mark: mark, Created: now}, "b", Outdated},
		"of a build under way":         {provider.Image{Created: now}, "b", Unfinished},
		"of a build that was given up": {provider.Image{Created: now.Add(-unfinished)}, "", Outdated},
	} {
		if got := stateOf(c.image, c.inputs, now); got != c.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// The setup runs code of the submission, so a file must not give it the host's network.
func TestSubmissionPlan_network(t *testing.T) {
	e := spec.Environment{Type: "docker", Name: "n", Docker: spec.Docker{Image: "a", Network: "host"}}
	s := Submission{Workspace: t.TempDir()}
	if _, err := newSubmissionPlan(t.Context(), &e, s, provider.Image{ID: "sha256:a"}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "docker.network: host") {
		t.Errorf("got %v", err)
	}
	e.AllowUnsafe = true
	if _, err := newSubmissionPlan(t.Context(), &e, s, provider.Image{ID: "sha256:a"}); err != nil {
		t.Errorf("allowed: %v", err)
	}
}
