package envimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// recipe is incremented when this package changes how it makes an image of the same inputs.
const recipe = 3

// plan describes how an environment's image is built.
type plan struct {
	env     spec.Environment // with defaults
	tags    []string
	build   *step    // builds the Dockerfile; nil without one
	refs    []string // the base images
	caches  bool     // steps of the Dockerfile mount caches, or may do so by ONBUILD
	allowed []string // unsafe features of the build that the user has allowed
}

// newPlan reads all inputs of an environment's image, except the base images.
func newPlan(ctx context.Context, e *spec.Environment) (*plan, error) {
	tags, err := Tags(e)
	if err != nil {
		return nil, err
	}
	p := &plan{env: e.WithDefaults(), tags: tags}
	for name, value := range p.env.Environment.Env {
		if strings.ContainsRune(name+value, 0) {
			return nil, &fumehood.Error{Op: "build image " + tags[0], Class: fumehood.ErrFile, Err: fmt.Errorf("the variable %q contains a NUL byte", name)}
		}
	}
	build := p.env.Docker.Build
	if build == nil {
		p.refs = []string{p.env.Docker.Image}
		return p, nil
	}
	dir, err := p.env.BuildContext()
	if err != nil {
		return nil, err
	}
	if err := p.readDockerfile(dir, build); err != nil {
		return nil, err
	}
	tree, err := image.Context(ctx, dir, build.Dockerfile, image.Options{Exclude: e.Exclude})
	if err != nil {
		return nil, err
	}
	p.build.trees = []*image.Tree{tree}
	if !tree.HasDockerfile() {
		p.build.Dockerfile = ""
	}
	return p, nil
}

// NeededImages returns the images that the build of an environment's image needs, and the image, without the context's files.
func NeededImages(e *spec.Environment) ([]provider.NeededImage, error) {
	tags, err := Tags(e)
	if err != nil {
		return nil, err
	}
	p := &plan{env: e.WithDefaults(), tags: tags}
	dir, err := p.env.BuildContext()
	if err == nil {
		err = p.readDockerfile(dir, p.env.Docker.Build)
	}
	if err != nil {
		return nil, err
	}
	var all []provider.NeededImage
	for _, ref := range p.refs {
		all = append(all, provider.NeededImage{Kind: provider.NeededBase, Ref: ref})
	}
	return append(all, provider.NeededImage{Kind: provider.NeededBuild, Ref: tags[0]}), nil
}

// readDockerfile reads the Dockerfile of a build.
func (p *plan) readDockerfile(dir string, build *spec.Build) error {
	if _, err := workspace.CleanPath(build.Dockerfile); err != nil {
		return &fumehood.Error{Op: "docker.build.dockerfile", Class: fumehood.ErrFile, Err: err}
	}
	text, err := image.ReadDockerfile(dir, build.Dockerfile)
	if err != nil {
		return err
	}
	read, err := image.Parse(text, build.Args)
	if err != nil {
		return &fumehood.Error{Op: "read", Path: filepath.Join(dir, build.Dockerfile), Class: fumehood.ErrFile, Err: err}
	}
	p.refs, p.caches = read.Bases, read.Caches
	p.build = &step{ImageBuild: provider.ImageBuild{
		Dockerfile: build.Dockerfile, Text: text, Args: build.Args, CacheScope: image.Scope(filepath.Dir(p.env.File), dir),
	}}
	return p.allow(filepath.Join(dir, build.Dockerfile), read.Check(build.Args))
}

// allow handles an error about an unsafe build: it returns nil if the user has allowed unsafe builds. file is the
// Dockerfile, or empty if an image is the cause.
func (p *plan) allow(file string, unsafe error) error {
	if unsafe == nil {
		return nil
	}
	if p.env.AllowUnsafe {
		p.allowed = append(p.allowed, unsafe.Error())
		return nil
	}
	op, class := "read", fumehood.ErrFile
	if file == "" {
		op, class = "build image "+p.tags[0], fumehood.ErrConfig
	}
	return &fumehood.Error{Op: op, Path: file, Class: class, Err: unsafe, Hint: "or allow it (--allow-unsafe)"}
}

// resolve returns the ids of the base images, or nil if one is missing.
func (p *plan) resolve(find func(ref string) (provider.Image, bool, error)) (ids map[string]string, err error) {
	ids = map[string]string{}
	for _, ref := range p.refs {
		base, found, err := find(ref)
		if err != nil || !found {
			return nil, err
		}
		if err := p.allow("", image.CheckTriggers(ref, base.OnBuild)); err != nil {
			return nil, err
		}
		p.caches = p.caches || len(base.OnBuild) > 0
		ids[ref] = base.ID
	}
	return ids, nil
}

// inputs returns the hash of all inputs of the image.
func (p *plan) inputs(ids map[string]string) string {
	inputs := struct {
		Recipe              int
		Bases               map[string]string
		Context, Dockerfile string
		Args, Env           map[string]string
		Dir, User           string
		Scope               string `json:",omitempty"`
	}{Recipe: recipe, Bases: ids, Env: p.env.Environment.Env, Dir: p.env.Docker.Workdir, User: p.env.Docker.User}
	if b := p.build; b != nil {
		inputs.Context, inputs.Dockerfile, inputs.Args = b.trees[0].Hash(), b.Dockerfile, b.Args
		if b.Dockerfile == "" {
			inputs.Dockerfile = b.Text
		}
		if p.caches {
			inputs.Scope = b.CacheScope
		}
	}
	return image.HashOf(inputs)
}

// steps returns the builds and the image that they start from. They are one of the Dockerfile, if there is one, and
// one of the environment on its result.
func (p *plan) steps(ids map[string]string) (base string, steps []step) {
	d := p.env.Docker
	last := environment(p.env.Environment.Env, d.Workdir, d.User, image.HashOf([]any{p.tags, p.inputs(ids)}))
	if p.build == nil {
		last.Allowed = p.allowed
		return ids[d.Image], []step{last}
	}
	first := *p.build
	first.Allowed = p.allowed
	return "", []step{first, last}
}

// environment returns the step that gives an image its variables and its working directory. If the directory doesn't
// exist, it is created for user. Names and values are passed as build arguments, so that the Dockerfile syntax does
// not interpret them; some cannot be written in it. of is a hash of the inputs.
func environment(env map[string]string, dir, user, base string) step {
	args := map[string]string{"FUMEHOOD_DIR": dir}
	declared, set := "ARG FUMEHOOD_DIR", ""
	for i, name := range slices.Sorted(maps.Keys(env)) {
		k, v := "FUMEHOOD_NAME_"+strconv.Itoa(i), "FUMEHOOD_VALUE_"+strconv.Itoa(i)
		args[k], args[v] = name, env[name]
		declared += " " + k + " " + v
		set += " ${" + k + "}=${" + v + "}"
	}
	if set != "" {
		set = "ENV" + set + "\n"
	}
	return step{
		ImageBuild: provider.ImageBuild{Args: args},
		on: declared + argSuffix(base) + "\n" + set +
			"COPY " + chown(user) + `["workdir/", "${FUMEHOOD_DIR}/"]` + "\nWORKDIR ${FUMEHOOD_DIR}\n",
		trees: []*image.Tree{image.Folder("workdir")},
	}
}

// argSuffix returns the end of a Dockerfile's first ARG. It keeps other images from sharing the cached steps. The
// Engine's own builder fails if a cached step is removed with another image while it is used.
func argSuffix(key string) string { return " FUMEHOOD_OF=" + key }

// chown returns the COPY flag that sets the owner of copied files; without it they belong to root.
func chown(user string) string {
	if user == "" {
		return ""
	}
	return "--chown=" + user + " "
}

// submissionPlan describes how a submission's image is built.
type submissionPlan struct {
	env        spec.Environment // with defaults
	submission Submission
	base       provider.Image
	user       string // owner of the workspace, and user of the setup; empty for root
	workspace  *image.Tree
	assets     *image.Tree // nil without assets
	setup      string
}

func newSubmissionPlan(ctx context.Context, e *spec.Environment, s Submission, base provider.Image) (*submissionPlan, error) {
	if s.Tag == "" && e.Name == "" {
		return nil, &fumehood.Error{Op: "build the image of " + s.Workspace, Class: fumehood.ErrFile, Err: errors.New("the environment has no name"), Hint: "name it, or give the image's tag"}
	}
	if err := spec.CheckNetwork("docker.network", e.Docker.Network); err != nil && !e.AllowUnsafe {
		return nil, err
	}
	if e.Setup.LoginShell {
		return nil, &fumehood.Error{Op: "build the image of " + s.Workspace, Class: fumehood.ErrFile, Err: errors.New("setup.login_shell is not for submissions: a login shell would run files of the submission")}
	}
	p := &submissionPlan{env: e.WithDefaults(), submission: s, base: base, user: e.Docker.User, setup: setup(e)}
	if p.user == "" {
		p.user = base.User
	}
	var err error
	if p.workspace, err = image.NewTree(ctx, s.Workspace, "workspace"); err != nil {
		return nil, err
	}
	if s.Assets != "" {
		p.assets, err = image.NewTree(ctx, s.Assets, "static")
	}
	return p, err
}

// setup returns the evaluation's setup as one script for a POSIX shell, or "" without commands. As in a session, its
// entries share a shell, and an entry that fails ends it only with fail_fast.
func setup(e *spec.Environment) string {
	s := e.Setup
	entries := slices.Concat(s.Commands, s.EvalCommands)
	if len(entries) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(e.HomeOutside())
	for _, entry := range entries {
		b.WriteString(entry + "\n")
		if s.FailFast {
			b.WriteString("case $? in 0) ;; *) exit $? ;; esac\n")
		}
	}
	return b.String() + "exit 0\n"
}

func (p *submissionPlan) inputs() string {
	inputs := struct {
		Recipe                  int
		Base, Workspace, Assets string
		Dir, User, Setup        string
		Network                 string
	}{recipe, p.base.ID, p.workspace.Hash(), "", p.env.Docker.Workdir, p.user, p.setup, networkOf(p.env)}
	if p.assets != nil {
		inputs.Assets = p.assets.Hash()
	}
	return image.HashOf(inputs)
}

func (p *submissionPlan) tag() string {
	if p.submission.Tag != "" {
		return p.submission.Tag
	}
	return "fumehood:" + p.env.Name + "-submission-" + p.inputs()[:12]
}

// inShell runs its argument in bash if the image has it, else in sh.
const inShell = `if command -v bash >/dev/null; then exec bash -c "$0"; fi; exec sh -c "$0"`

// steps returns the builds: one that copies the files, and one that runs the setup on its result.
func (p *submissionPlan) steps() []step {
	trees, keys := []*image.Tree{p.workspace}, []string{p.base.ID, p.workspace.Hash(), ""}
	if p.assets != nil {
		trees, keys[2] = append(trees, p.assets), p.assets.Hash()
	}
	on := "ARG FUMEHOOD_DIR" + argSuffix(image.HashOf(keys)) + "\nCOPY " + chown(p.user) + `["workspace/", "${FUMEHOOD_DIR}/"]` + "\n"
	if p.assets != nil {
		on += fmt.Sprintf("COPY [\"static/\", \"%s/\"]\n", path.Clean(spec.StaticDir))
	}
	if p.user != "" {
		on += "USER " + p.user + "\n"
	}
	steps := []step{{ImageBuild: provider.ImageBuild{Args: map[string]string{"FUMEHOOD_DIR": p.env.Docker.Workdir}}, on: on, trees: trees}}
	if p.setup != "" {
		run, _ := json.Marshal([]string{"sh", "-c", inShell, p.setup}) // strings only: cannot fail
		limits := p.env.Limits
		steps = append(steps, step{
			ImageBuild: provider.ImageBuild{Network: networkOf(p.env), Memory: max(limits.Memory, 0), CPUs: max(limits.CPUs, 0)},
			on:         "RUN " + string(run) + "\n", timeout: max(p.env.Setup.Timeout, 0),
		})
	}
	return steps
}
