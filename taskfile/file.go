//go:generate go test -count=1 -run TestTheSchemaIsWhatTheTypesSay . -update-schema

// Package taskfile reads task files: YAML that says what an evaluation runs in which sandboxes, and how it is scored.
//
//	f, err := taskfile.Read("task.yaml", taskfile.ReadOptions{})
//	what, how, err := f.Task(ctx, provider, taskfile.TaskOptions{})
//	for result, err := range task.Run(ctx, what, how) {
//
// Package eval does that and records the results.
//
// Files are read strictly: all that is wrong is said at once, by line.
package taskfile

import (
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/buildcontext"
	"github.com/fumehood/fumehood/score"
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/task"
)

// What a task file has where it does not say.
const (
	DefaultEpochs  = 1
	DefaultTimeout = 10 * time.Minute // of each command
)

// File is a task file. In YAML a key that is null counts as absent.
type File struct {
	// File is where the task was read from, as the reader named it. Relative paths start at its folder.
	File string `yaml:"-"`
	// Name is the task's.
	Name string `yaml:"name" form:"name" required:"true"`
	// Epochs is how often each sample is attempted, each time in a sandbox of its own.
	Epochs int `yaml:"epochs" form:"number"`
	// AttemptTimeout bounds solving and scoring one attempt; one that takes longer has the score 0. Absent or
	// none means no bound.
	AttemptTimeout time.Duration `yaml:"attempt_timeout" form:"duration"`
	// SetupTimeout bounds each set-up script.
	SetupTimeout time.Duration `yaml:"setup_timeout" form:"duration"`
	// Defaults hold for each sample that does not say otherwise: its keys are the samples'. Files and metadata are
	// merged by their keys; all else is the sample's own or, where it says nothing, the default.
	Defaults `yaml:",inline"`
	// Samples are samples that are written here.
	Samples []*Sample `yaml:"samples"`
	// SamplesFrom are files that hold samples, one a line or row: NAME.jsonl, NAME.csv, NAME.tsv, NAME.yaml or NAME.json
	// (a list). A column of a table is a key, with points between the keys of what is nested: expect.stdout.exact.
	SamplesFrom []string `yaml:"samples_from"`
	// SampleFolders are patterns such as problems/*, each folder of which is a sample: it has a sample.yaml with the
	// sample's keys, whose paths start at that folder, and the folder's name is its id where that says none.
	SampleFolders []string `yaml:"sample_folders"`

	provider  string
	byID      map[string]*Sample
	buildings []*building
	secrets   buildcontext.Secrets // of which no image is built, see TaskOptions.Exclude
	// unstarted holds, for attempts whose solver has ended since a step could not be started, what is to be said of it.
	unstarted sync.Map // of *task.Attempt to string
}

// Defaults is what samples have in common with what a task says for all of them.
type Defaults struct {
	// Environment is what the sandboxes are. Absent means Fumehood's default image.
	Environment *Environment `yaml:"environment"`
	// Limits bounds each service that has no limits of its own.
	Limits spec.Limits `yaml:"limits"`
	// Metadata is what Compose files see as SAMPLE_METADATA_KEY.
	Metadata map[string]string `yaml:"metadata" form:"some"`
	// Files are put into the sandbox, as PATH: CONTENT or SERVICE:PATH: CONTENT. CONTENT is a data URL, the path of a
	// file of this machine, or the text itself.
	Files map[string]string `yaml:"files" form:"some"`
	// Setup is a script that is run before the sample: a path of this machine, or the text itself.
	Setup string `yaml:"setup"`
	// Command is the program and its arguments; a text is run by sh.
	Command Args `yaml:"command"`
	// Stdin is the command's standard input, written as the content of files is.
	Stdin string `yaml:"stdin"`
	// Steps are several commands in the place of one, which are run in this order.
	Steps []Step `yaml:"steps"`
	// Timeout bounds each command that does not say otherwise; none means no bound.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
	// CPUTime bounds the processor time of each process of a command, in whole seconds; signal 24 ends one that takes
	// longer. Absent or none means no bound.
	CPUTime time.Duration `yaml:"cpu_time" form:"duration"`
	// Expect is what is expected of the last command, and of the files at the end. Where there is no grader, absent means
	// that the command exits with 0.
	Expect *score.Expect `yaml:"expect"`
	// Grader is a command that scores the attempt in a sandbox of its own, in place of expect.
	Grader *Grader `yaml:"grader"`
}

// Sample is one sample.
type Sample struct {
	// ID names the sample; it is unique in the task.
	ID       string `yaml:"id" form:"id" required:"true"`
	Defaults `yaml:",inline"`

	source source
	at     string // file and line

	// What follows from the above, with what the task says for all samples.
	spec    fumehood.Spec
	content task.Sample // its ID, Metadata, Files and Setup
	steps   []step
	grader  *score.Grader // but for its provider
}

// Args are a program and its arguments. In YAML a text is one that sh runs.
type Args []string

// Environment says what sandboxes are: by one of file, compose, dockerfile and image. User, workdir, env, network and
// runtime go with an image only, or with nothing: then the image is Fumehood's default.
type Environment struct {
	// File is an environment spec, or a folder or file of any kind that fumehood run -f takes.
	File string `yaml:"file" form:"some"`
	// Compose is a Compose file, or a list of them, each over those before it.
	Compose []string `yaml:"compose"`
	// Dockerfile is built; its folder is the context.
	Dockerfile string `yaml:"dockerfile" form:"some"`
	// Image is an image's reference.
	Image string `yaml:"image" form:"image"`
	// User is who commands run as. Absent means the image's.
	User string `yaml:"user" form:"user"`
	// Workdir is the working directory. Absent means the image's.
	Workdir string `yaml:"workdir" form:"path"`
	// Env holds variables. Numbers, true and false need quotes.
	Env map[string]string `yaml:"env"`
	// Network is none (also when absent), bridge, host, or the name of a network that exists. Everything but none
	// loosens the isolation; host and one that exists need the user's --allow-unsafe.
	Network string `yaml:"network" form:"network"`
	// Runtime is the name of one of the daemon's container runtimes, such as runsc for gVisor. Absent means the user's
	// choice, else the daemon's default.
	Runtime string `yaml:"runtime" form:"runtime"`
	// Service is the default service of a Compose project. Absent means that which the project says.
	Service string `yaml:"service" form:"some"`
}

// Step is one command of several.
type Step struct {
	// Name names the step in results; it is unique among the steps. Absent means its number, from 1 on.
	Name string `yaml:"name" form:"id"`
	// Command is the program and its arguments; a text is run by sh.
	Command Args `yaml:"command" form:"command" required:"true"`
	// Background starts the command and goes on. It is killed when the last step has ended. What any other step leaves running
	// is killed when its command ends.
	Background bool `yaml:"background"`
	// Service is where it runs. Absent means the default service.
	Service string `yaml:"service" form:"some"`
	// User is who it runs as. Absent means the service's user.
	User string `yaml:"user" form:"user"`
	// Workdir is its working directory; a relative one is below the service's.
	Workdir string `yaml:"workdir" form:"some"`
	// Env is added to the service's variables.
	Env map[string]string `yaml:"env"`
	// Stdin is its standard input, written as the content of files is.
	Stdin string `yaml:"stdin"`
	// Timeout bounds it. Absent means the sample's; none means no bound.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
	// CPUTime bounds the processor time of each of its processes. Absent means the sample's; none means no bound.
	CPUTime time.Duration `yaml:"cpu_time" form:"duration"`
	// Expect is what is expected of it. Where that does not come true, no further step is run, and the score is 0.
	// Absent expects nothing.
	Expect *score.Expect `yaml:"expect"`
}

// Grader scores attempts by a command in a fresh sandbox without a network, into which nothing of the attempt gets but
// the artifacts.
type Grader struct {
	// Environment is what its sandbox is. Absent means the sample's, unless that is a Compose project.
	Environment *Environment `yaml:"environment"`
	// Limits bounds it.
	Limits spec.Limits `yaml:"limits"`
	// Command is the program and its arguments; a text is run by sh.
	Command Args `yaml:"command" form:"command" required:"true"`
	// Score says where the score comes from: json (also when absent) is what the command prints, a number from 0 to 1 or
	// {"score": N, "scores": {NAME: N}, "reasons": [TEXT]}; exit_code is 1 for exit code 0, and 0 for all else.
	Score string `yaml:"score" form:"score"`
	// Artifacts are files and folders of the attempt that are carried into it, each a path, or {path, to, optional}.
	// Links and special files in them make the score 0.
	Artifacts []score.Artifact `yaml:"artifacts"`
	// Hidden are paths of this machine that are copied into it, as HOST: CONTAINER, where its user alone may read them.
	Hidden map[string]string `yaml:"hidden" form:"some"`
	// User is who the command runs as. Absent means the image's.
	User string `yaml:"user" form:"user"`
	// Workdir is its working directory. Absent means the sandbox's.
	Workdir string `yaml:"workdir" form:"path"`
	// Env is added to its variables.
	Env map[string]string `yaml:"env"`
	// Timeout bounds it.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
	// MaxSize bounds all artifacts together, such as 64MiB.
	MaxSize int64 `yaml:"max_size" form:"bytes"`
	// MaxFiles bounds how many files and folders they are.
	MaxFiles int `yaml:"max_files" form:"number"`
}
