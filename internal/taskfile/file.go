//go:generate go test -count=1 -run TestSchema_upToDate . -update-schema

// Package taskfile reads task files. A task file is YAML that defines what an evaluation runs in which sandboxes,
// and how it is scored.
//
//	f, err := taskfile.Read("task.yaml", taskfile.ReadOptions{})
//	what, how, err := f.Task(ctx, provider, taskfile.TaskOptions{})
//	for result, err := range task.Run(ctx, what, how) {
//
// Package eval does that and records the results.
//
// Files are read strictly: all problems are reported at once, by line.
package taskfile

import (
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/session/spec"
)

// The defaults of a task file.
const (
	DefaultEpochs  = 1
	DefaultTimeout = 10 * time.Minute // for each command
)

// File is a task file. In YAML a key with the value null counts as absent.
type File struct {
	// File is the path that the task was read from, as the reader named it. Relative paths are resolved against
	// its folder.
	File string `yaml:"-"`
	// Name is the name of the task.
	Name string `yaml:"name" form:"name" required:"true"`
	// Epochs is the number of attempts at each sample, each in a new sandbox.
	Epochs int `yaml:"epochs" form:"number"`
	// AttemptTimeout bounds the time to solve and score one attempt; a longer attempt has the score 0. Absent or
	// none means no limit.
	AttemptTimeout time.Duration `yaml:"attempt_timeout" form:"duration"`
	// SetupTimeout bounds the time of each setup script.
	SetupTimeout time.Duration `yaml:"setup_timeout" form:"duration"`
	// Defaults apply to each sample that does not set its own value. They have the same keys as samples. Files
	// and metadata are merged by key; of all other keys a sample has its own value or, if it sets none, the
	// default.
	Defaults `yaml:",inline"`
	// Samples are samples in the task file itself.
	Samples []*Sample `yaml:"samples"`
	// SamplesFrom are files with samples, one for each line or row: NAME.jsonl, NAME.csv, NAME.tsv, NAME.yaml or
	// NAME.json (a list). A column of a table is a key, with points between nested keys: expect.stdout.exact.
	SamplesFrom []string `yaml:"samples_from"`
	// SampleFolders are patterns such as problems/*, which match folders with one sample each. The sample.yaml in
	// such a folder has the sample's keys, and its paths are resolved against the folder. The default id is the
	// folder's name.
	SampleFolders []string `yaml:"sample_folders"`

	provider  string
	byID      map[string]*Sample
	buildings []*building
	secrets   image.Secrets // left out of images, see TaskOptions.Exclude
}

// Defaults are the keys that samples and task files share.
type Defaults struct {
	// Environment defines the sandboxes. Absent means Fumehood's default image.
	Environment *Environment `yaml:"environment"`
	// Limits bounds each service without its own limits.
	Limits spec.Limits `yaml:"limits"`
	// Metadata are values that Compose files see as SAMPLE_METADATA_KEY.
	Metadata map[string]string `yaml:"metadata" form:"some"`
	// Files are written to the sandbox, as PATH: CONTENT or SERVICE:PATH: CONTENT. CONTENT is {text: TEXT}, {file:
	// PATH}, or a value: a data URL, the path of a file of this machine, or the text itself. A value that is one
	// word with a slash or a file extension is always a path.
	Files Files `yaml:"files" form:"some"`
	// Setup is a script that runs before the sample, in the form of the content of files.
	Setup Content `yaml:"setup"`
	// Command is the program and its arguments; a text is run by sh.
	Command Args `yaml:"command"`
	// Stdin is the command's standard input, in the form of the content of files.
	Stdin Content `yaml:"stdin"`
	// Steps are several commands instead of one, which run in this order.
	Steps []Step `yaml:"steps"`
	// Timeout bounds the time of each command that does not set its own; none means no limit.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
	// CPUTime bounds the processor time of a command and all its processes together. A command that exceeds it is killed, with
	// the outcome cpu-time-exceeded. Absent or none means no limit.
	CPUTime time.Duration `yaml:"cpu_time" form:"duration"`
	// Expect is the expected outcome of the last command, and of the files at the end. If absent, and there is no
	// grader, the command must exit with 0.
	Expect *score.Expect `yaml:"expect"`
	// Grader is a command that scores the attempt in a separate sandbox, instead of expect.
	Grader *Grader `yaml:"grader"`
}

// Sample is a sample of a task.
type Sample struct {
	// ID is the name of the sample; it is unique in the task.
	ID       string `yaml:"id" form:"id" required:"true"`
	Defaults `yaml:",inline"`

	source source
	at     string // position as file and line

	// The values below are computed from those above and the task's defaults.
	spec    fumehood.Spec
	content task.Sample // ID, Metadata, Files and Setup
	steps   []step
	grader  *score.Grader // without its provider
}

// Args is a program and its arguments. In YAML, a text is a command for sh.
type Args []string

// Environment defines sandboxes by one of file, compose, dockerfile and image. User, workdir, env, network, runtime,
// seccomp, shm_size and tmpfs are allowed only with an image, or alone: then the image is Fumehood's default.
type Environment struct {
	// File is an environment spec, or a folder or file of any kind that fumehood run -f accepts.
	File string `yaml:"file" form:"some"`
	// Compose is a Compose file, or a list of them, each overriding those before it.
	Compose []string `yaml:"compose"`
	// Dockerfile is a Dockerfile to build; its folder is the context.
	Dockerfile string `yaml:"dockerfile" form:"some"`
	// Image is an image reference.
	Image string `yaml:"image" form:"image"`
	// User is the user of commands. Absent means the image's.
	User string `yaml:"user" form:"user"`
	// Workdir is the working directory. Absent means the image's.
	Workdir string `yaml:"workdir" form:"path"`
	// Env holds variables. Numbers, true and false need quotes.
	Env map[string]string `yaml:"env"`
	// Network is none (the default), bridge, host, or the name of an existing network. Every value but none
	// weakens isolation; host and existing networks need the user's --allow-unsafe.
	Network string `yaml:"network" form:"network"`
	// Runtime is the name of one of the daemon's container runtimes, such as runsc for gVisor. If absent, it is
	// the user's choice, else the daemon's default.
	Runtime string `yaml:"runtime" form:"runtime"`
	// Seccomp is the seccomp profile browsers, with which browsers can isolate their own processes. It weakens
	// isolation, and needs the user's --allow-unsafe. If absent, it is Fumehood's own.
	Seccomp string `yaml:"seccomp" form:"seccomp"`
	// ShmSize is the size of /dev/shm, such as 1GiB, up to the memory limit. If absent, it is 64MiB.
	ShmSize int64 `yaml:"shm_size" form:"bytes"`
	// Tmpfs lists file systems in memory, as PATH[:OPTION,...] with options such as size=64MiB and mode=0700.
	Tmpfs spec.Tmpfs `yaml:"tmpfs" form:"tmpfs"`
	// Service is the default service of a Compose project. Absent means the one that the project names.
	Service string `yaml:"service" form:"some"`

	line int // of the key that names the files
}

// Step is a command of a sample with several commands.
type Step struct {
	// Name is the name of the step in results; it is unique among the steps. Absent means its number, starting at
	// 1.
	Name string `yaml:"name" form:"id"`
	// Command is the program and its arguments; a text is run by sh.
	Command Args `yaml:"command" form:"command" required:"true"`
	// Background starts the command and continues with the next step. The command is killed when the last step
	// has ended. Processes that any other step leaves running are killed when its command ends.
	Background bool `yaml:"background"`
	// Service is the service that runs the step. Absent means the default service.
	Service string `yaml:"service" form:"some"`
	// User is the user of the command. Absent means the service's user.
	User string `yaml:"user" form:"user"`
	// Workdir is its working directory; a relative path is resolved against the service's.
	Workdir string `yaml:"workdir" form:"some"`
	// Env is added to the service's variables.
	Env map[string]string `yaml:"env"`
	// Stdin is its standard input, in the form of the content of files.
	Stdin Content `yaml:"stdin"`
	// Timeout bounds its time. Absent means the sample's; none means no limit.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
	// CPUTime bounds the processor time of all its processes together. Absent means the sample's; none means no limit.
	CPUTime time.Duration `yaml:"cpu_time" form:"duration"`
	// Expect is the expected outcome. If it is not met, no further step runs, and the score is 0. Absent means
	// that any outcome is accepted.
	Expect *score.Expect `yaml:"expect"`
}

// Grader scores attempts by a command in a new sandbox without a network. Of the attempt, only the artifacts are
// copied into it.
type Grader struct {
	// Environment defines its sandbox. Absent means the sample's, unless that is a Compose project.
	Environment *Environment `yaml:"environment"`
	// Limits bounds its sandbox.
	Limits spec.Limits `yaml:"limits"`
	// Command is the program and its arguments; a text is run by sh.
	Command Args `yaml:"command" form:"command" required:"true"`
	// Score is the source of the score. With json (the default) the command prints it, as a number from 0 to 1 or
	// {"score": N, "scores": {NAME: N}, "reasons": [TEXT]}. With exit_code it is 1 for exit code 0, and 0
	// otherwise.
	Score string `yaml:"score" form:"score"`
	// OnFailure is what a command stands for that fails or prints no valid score. With score (the default) the attempt
	// has the score 0, unless the command fails in the same way for empty artifacts. With error it is always an error:
	// attempts can use that to have no score.
	OnFailure string `yaml:"on_failure" form:"failure"`
	// Artifacts are files and folders of the attempt that are copied into it, each a path, or {path, to,
	// optional}. If they contain links or special files, the score is 0.
	Artifacts []score.Artifact `yaml:"artifacts"`
	// Hidden are paths of this machine that are copied into it, as HOST: CONTAINER. Only its user can read them
	// there.
	Hidden map[string]string `yaml:"hidden" form:"some"`
	// User is the user of the command. Absent means the image's.
	User string `yaml:"user" form:"user"`
	// Workdir is its working directory. Absent means the sandbox's.
	Workdir string `yaml:"workdir" form:"path"`
	// Env is added to its variables.
	Env map[string]string `yaml:"env"`
	// Timeout bounds its time.
	Timeout time.Duration `yaml:"timeout" form:"duration"`
	// CPUTime bounds the processor time of all its processes together. Absent or none means no limit.
	CPUTime time.Duration `yaml:"cpu_time" form:"duration"`
	// MaxSize bounds the total size of all artifacts, such as 64MiB.
	MaxSize int64 `yaml:"max_size" form:"bytes"`
	// MaxFiles bounds the number of files and folders among the artifacts.
	MaxFiles int `yaml:"max_files" form:"number"`

	line int // of hidden
}
