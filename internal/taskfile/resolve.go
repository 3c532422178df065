package taskfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/alike"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/internal/strict"
	"github.com/fumehood/fumehood/session/spec"
)

// maxShared bounds the total number of the defaults' files, metadata and steps over all samples, because each
// sample has a copy of them.
const maxShared = 1_000_000

// step is a Step that is ready to run.
type step struct {
	Step
	stdin task.Content
	wall  time.Duration // 0 for no limit
	cpu   time.Duration // 0 for no limit
}

// problems collects the problems of a task. Each is reported once: samples share the values of the task.
type problems struct {
	errs alike.Errors
	seen map[string]bool
}

func (p *problems) add(op string, err error) {
	e := &fumehood.Error{Op: op, Class: fumehood.ErrFile, Err: err}
	if text := e.Error(); !p.seen[text] {
		p.seen[text] = true
		p.errs.Add(op, err, e)
	}
}

// origin is where values are from: a sample, or the task if sample is empty.
type origin struct {
	*problems
	source
	at     string // position without a line of a value
	sample string
}

// bad records a problem of a value on that line of the source; 0 means the position of the sample. Nil is ignored.
func (o origin) bad(line int, err error) {
	if err == nil {
		return
	}
	op := o.at
	if line > 0 && !o.data { // a row of data has one position
		op = at(o.file, line)
	}
	if o.sample != "" {
		op += fmt.Sprintf(": sample %q", o.sample)
	}
	o.add(op, err)
}

// contents are the contents that a task or a sample names.
type contents struct {
	files        map[string]task.Content
	setup, stdin task.Content
	steps        []task.Content // standard inputs
}

// contents returns the contents of the values, and records problems of all.
func (d *Defaults) contents(o origin) (all contents) {
	get := func(field string, c Content) task.Content {
		got, err := o.content(c)
		if err != nil {
			o.bad(c.line, fmt.Errorf("%s: %w", field, err))
		}
		return got
	}
	all.files = map[string]task.Content{}
	for _, key := range slices.Sorted(maps.Keys(d.Files)) {
		all.files[key] = get(fmt.Sprintf("file %q", key), d.Files[key])
	}
	all.setup, all.stdin = get("setup", d.Setup), get("stdin", d.Stdin)
	for i, st := range d.Steps {
		all.steps = append(all.steps, get(fmt.Sprintf("step %q: stdin", cmp.Or(st.Name, strconv.Itoa(i+1))), st.Stdin))
	}
	return all
}

// images makes the paths of images that are files or folders absolute, before environments of other files are combined with
// these. It records a problem of each path that may not be read.
func (o origin) images(d *Defaults) {
	resolve := func(key string, e *Environment) {
		if e == nil {
			return
		}
		image, err := o.gate.Image(e.Image, o.dir)
		if err != nil {
			o.bad(e.line, fmt.Errorf("%s: %w", key, err))
			return
		}
		e.Image = image
	}
	resolve("environment.image", d.Environment)
	if d.Grader != nil {
		resolve("grader.environment.image", d.Grader.Environment)
	}
}

// resolve combines each sample with the task's defaults, and checks it. It reports all problems.
func (f *File) resolve(dir string, gate hostpath.Gate, opts ReadOptions) error {
	f.Epochs = cmp.Or(f.Epochs, DefaultEpochs)
	if n := len(f.Files) + len(f.Metadata) + len(f.Steps); n > 0 && len(f.Samples) > maxShared/n {
		return &fumehood.Error{
			Op: f.File, Class: fumehood.ErrFile,
			Err: fmt.Errorf("%d samples with %d files, metadata and steps of the defaults each are too many: %d in all at most", len(f.Samples), n, maxShared),
		}
	}
	found := &problems{seen: map[string]bool{}}
	own := origin{problems: found, source: source{file: f.File, dir: dir, gate: gate}, at: f.File}
	envs := &environments{opts: opts, known: map[*Environment]*environment{}, trees: map[string]error{}}
	own.images(&f.Defaults)
	shared := f.contents(own)
	for _, s := range f.Samples {
		s.resolve(&f.Defaults, own, shared, envs)
		if first := f.byID[s.ID]; first != nil {
			found.add(fmt.Sprintf("%s: sample %q", s.at, s.ID), fmt.Errorf("duplicate id, already used at %s", first.at))
			continue
		}
		f.byID[s.ID] = s
		f.noteFiles(s)
	}
	f.provider, f.buildings = cmp.Or(envs.provider, spec.TypeDocker), envs.buildings
	return found.errs.Join()
}

// checkFiles reports the problems of the files that are named by a task file with other problems, of d. Environments with
// such problems are left out.
func (f *File) checkFiles(dir string, gate hostpath.Gate, opts ReadOptions, d *strict.Decoder) error {
	found := &problems{seen: map[string]bool{}}
	envs := &environments{opts: opts, known: map[*Environment]*environment{}, trees: map[string]error{}}
	check := func(defaults *Defaults, who origin, path string) {
		defaults.contents(who)
		who.images(defaults)
		if defaults.Environment != nil && !d.Within(path+"environment") {
			envs.of(defaults.Environment, who)
		}
		if defaults.Grader != nil && !d.Within(path+"grader") {
			envs.hide(defaults.Grader, who)
			if defaults.Grader.Environment != nil {
				envs.of(defaults.Grader.Environment, who)
			}
		}
	}
	check(&f.Defaults, origin{problems: found, source: source{file: f.File, dir: dir, gate: gate}, at: f.File}, "")
	for i, s := range f.Samples {
		path := fmt.Sprintf("samples[%d].", i)
		if s != nil && (s.source.file != f.File || !d.Within(strings.TrimSuffix(path, "."))) {
			check(&s.Defaults, origin{found, s.source, s.at, s.ID}, path)
		}
	}
	return found.errs.Join()
}

// noteFiles records the files of a sample that must not be in images, or only in the sample's own.
func (f *File) noteFiles(s *Sample) {
	f.secrets.AddOf(s.ID, s.content.Setup.Path)
	for _, content := range s.content.Files {
		f.secrets.AddOf(s.ID, content.Path)
	}
	for _, st := range s.steps {
		f.secrets.AddOf(s.ID, st.stdin.Path)
	}
	if s.grader != nil {
		for _, m := range s.grader.Hidden {
			f.secrets.Add(m.Host)
		}
	}
}

// resolve sets the values that are computed from a sample and the defaults. It records all problems.
func (s *Sample) resolve(defaults *Defaults, taskOrigin origin, shared contents, envs *environments) {
	me := origin{taskOrigin.problems, s.source, s.at, s.ID}
	mine := s.contents(me)
	me.images(&s.Defaults)
	s.resolveSteps(defaults, taskOrigin, me, mine, shared)
	s.content = task.Sample{ID: s.ID, Metadata: map[string]string{}, Files: map[string]task.Content{}, Setup: mine.setup}
	maps.Copy(s.content.Metadata, defaults.Metadata)
	maps.Copy(s.content.Metadata, s.Metadata)
	maps.Copy(s.content.Files, shared.files)
	maps.Copy(s.content.Files, mine.files)
	if !s.Setup.isSet() {
		s.content.Setup = shared.setup
	}
	if err := envs.allow(s, s.checkData(defaults)); err != nil {
		me.bad(0, err)
		return // its environment may be of a file that data must not name
	}
	if s.source.data {
		if err := s.overTask(defaults); err != nil {
			me.bad(0, err)
			return
		}
	}
	env := envs.either(s.Environment, me, defaults.Environment, taskOrigin)
	if env != nil {
		me.bad(0, envs.allow(s, above("limits", s.Limits, env.with(defaults.Limits).Limits)))
		s.spec = env.with(s.Limits, defaults.Limits)
		env.needs(s.ID, &s.spec)
		me.bad(0, s.spec.Validate())
	}
	s.resolveScore(defaults, taskOrigin, me, env, envs)
}

// resolveSteps sets the commands to run. A single command becomes a step.
func (s *Sample) resolveSteps(defaults *Defaults, common, me origin, mine, shared contents) {
	who, level, inputs := me, &s.Defaults, mine
	whose := "it"
	if s.Command == nil && s.Steps == nil {
		who, level, inputs, whose = common, defaults, shared, "the task"
	}
	stdin := mine.stdin
	if !s.Stdin.isSet() {
		stdin = shared.stdin
	}
	steps := level.Steps
	switch {
	case level.Command != nil && level.Steps != nil:
		who.bad(0, errors.New(whose+" has a command and steps, but must have exactly one of them"))
		return
	case level.Command != nil:
		steps, inputs.steps = []Step{{Command: level.Command}}, append(inputs.steps[:0:0], stdin)
	case len(steps) == 0:
		me.bad(0, errors.New("it has neither a command nor steps"))
		return
	case s.Stdin.isSet() || defaults.Stdin.isSet():
		me.bad(0, errors.New("stdin goes with a command: each step has its own"))
	}
	names := map[string]bool{}
	s.steps = nil
	for i, st := range steps {
		st.Name, st.Stdin = cmp.Or(st.Name, strconv.Itoa(i+1)), Content{}
		if names[st.Name] {
			who.bad(0, fmt.Errorf("duplicate step name %q", st.Name))
		}
		names[st.Name] = true
		ready := step{Step: st, stdin: inputs.steps[i], wall: s.wall(st.Timeout, defaults), cpu: s.cpuTime(st.CPUTime, defaults)}
		if err := st.check(i == len(steps)-1); err != nil {
			who.bad(0, fmt.Errorf("step %q: %w", st.Name, err))
		}
		s.steps = append(s.steps, ready)
	}
}

// check returns an error for a step that cannot run as it is. Last reports whether it is the last step.
func (st *Step) check(last bool) error {
	switch {
	case st.Background && st.Expect != nil:
		return errors.New("nothing can be expected of a step in the background")
	case st.Background && last:
		return errors.New("the last step cannot be in the background")
	case st.Expect != nil:
		return st.Expect.Validate()
	}
	return nil
}

// wall returns the time limit of a command; 0 means no limit.
func (s *Sample) wall(own time.Duration, defaults *Defaults) time.Duration {
	return limit(cmp.Or(own, s.Timeout, defaults.Timeout, DefaultTimeout))
}

// cpuTime returns the limit of a command's processor time; 0 means no limit.
func (s *Sample) cpuTime(own time.Duration, defaults *Defaults) time.Duration {
	return limit(cmp.Or(own, s.CPUTime, defaults.CPUTime))
}

// limit converts a duration of a file: the result 0 means no limit.
func limit(d time.Duration) time.Duration {
	if d == fumehood.NoLimit {
		return 0
	}
	return d
}

// resolveScore sets how the sample is scored. The sandbox of the sample is env; nil if it could not be read.
func (s *Sample) resolveScore(defaults *Defaults, common, me origin, env *environment, envs *environments) {
	whose, level, who := "it", &s.Defaults, me
	if s.Expect == nil && s.Grader == nil {
		whose, level, who = "the task", defaults, common
	}
	s.Expect = level.Expect
	switch {
	case level.Expect != nil && level.Grader != nil:
		who.bad(0, errors.New(whose+" has expectations and a grader, but must have exactly one of them"))
	case level.Expect != nil:
		who.bad(0, level.Expect.Validate())
	case level.Grader != nil:
		s.grader = level.Grader.resolve(s.ID, who, me, env, envs)
	case len(s.steps) > 0 && s.steps[len(s.steps)-1].Expect == nil:
		s.Expect = &score.Expect{}
	}
}

// resolve returns the grader, without its provider, of the sample id whose sandbox is env. It is nil after problems
// with the environment. Problems of its values are recorded for who, others for the sample, me.
func (g *Grader) resolve(id string, who, me origin, env *environment, envs *environments) *score.Grader {
	hidden := envs.hide(g, who)
	if g.Environment != nil {
		env = envs.of(g.Environment, who)
	} else if env != nil {
		bare := *env
		bare.Network, bare.Ports = fumehood.Network{}, nil // graders have neither network nor ports
		env = &bare
	}
	if env == nil {
		return nil
	}
	if len(g.Hidden) > 0 && envs.provider == spec.TypeLocal {
		who.bad(g.line, errors.New("grader: hidden files need a sandbox with its own files, which type local does not have"))
	}
	out := &score.Grader{
		Spec: env.with(g.Limits, spec.Limits{}), Artifacts: g.Artifacts, ByExitCode: g.Score == scoreExitCode, MaxBytes: g.MaxSize, MaxFiles: g.MaxFiles,
		Cmd:    fumehood.Cmd{Args: g.Command, User: g.User, Dir: g.Workdir, Env: g.Env, Timeout: limit(g.Timeout), CPUTime: limit(g.CPUTime)},
		Hidden: hidden, ErrorOnFailure: g.OnFailure == onFailureError,
	}
	env.needs(id, &out.Spec)
	if err := out.Validate(); err != nil {
		me.bad(0, fmt.Errorf("grader: %w", err))
	}
	return out
}

// hide returns the hidden files of a grader, and records the problems of the others.
func (all *environments) hide(g *Grader, who origin) (hidden []fumehood.Mount) {
	for _, host := range slices.Sorted(maps.Keys(g.Hidden)) {
		path := inDir(who.dir, host)
		err := who.gate.Check(path)
		switch {
		case who.data && !filepath.IsLocal(host):
			err = fmt.Errorf("grader: hidden path %q is outside of the folder of the data that names it", host)
		case err != nil:
			err = fmt.Errorf("grader: hidden path %q: %w", host, err)
		case !exists(path):
			err = fmt.Errorf("grader: hidden path %q does not exist: %s", host, path)
		default:
			if err = all.readableTree(path); err != nil {
				err = fmt.Errorf("grader: hidden path %q: %w", host, err)
			}
		}
		if err == nil {
			hidden = append(hidden, fumehood.Mount{Host: path, Container: g.Hidden[host]})
		}
		who.bad(g.line, err)
	}
	return hidden
}

// readableTree returns an error for a file or folder with something that cannot be copied.
func (all *environments) readableTree(path string) error {
	err, known := all.trees[path]
	if known {
		return err
	}
	real, err := filepath.EvalSymlinks(path) // the grader resolves links in this path only
	if err == nil {
		err = filepath.WalkDir(real, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil || e.IsDir() || e.Type()&fs.ModeSymlink != 0:
				return err
			case !e.Type().IsRegular():
				return fmt.Errorf("%s is a %s, which cannot be copied", path, archive.Kind(e.Type()))
			}
			return readable(path)
		})
	}
	all.trees[path] = err
	return err
}
