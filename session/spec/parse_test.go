package spec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// The first example of docs/spec.md has all keys, so that this test covers each of them.
func TestParse_docExample(t *testing.T) {
	got, err := Parse("env.yaml", []byte(examples(t)[0]))
	if err != nil {
		t.Fatal(err)
	}
	want := &Environment{
		File: "env.yaml",
		Type: "docker",
		Name: "python3.12",
		Docker: Docker{
			Image: "python:3.12-slim", Binary: "docker", Workdir: "/workspace", MountWorkspace: new(true),
			ExtraMounts: Mounts{{Host: "data", Container: "/container/data"}, {Host: "fixtures", Container: "/fixtures", Writable: true}},
			Network:     "bridge", Runtime: "runsc", Seccomp: fumehood.SeccompBrowsers,
			ShmSize: 1 << 30, Tmpfs: Tmpfs{"/scratch:size=64MiB,mode=0700"}, Ports: Ports{{8080, 80}, {0, 81}, {0, 82}}, User: "1000:1000",
			Build: &Build{Context: ".", Dockerfile: "Dockerfile", Args: map[string]string{}},
		},
		Environment: Variables{Env: map[string]string{"LANG": "C.UTF-8"}},
		Setup: Setup{
			Commands:     []string{"cd /workspace", "export PATH=$PWD/bin:$PATH"},
			EvalCommands: []string{"pip install --no-index pytest"}, ResumeCommands: []string{"echo resumed"}, Timeout: 10 * time.Minute,
		},
		Commands: Commands{EntryFile: "{entry_file}.py", Command: "python"},
		Snapshot: Snapshot{IgnoreGlobs: []string{"**/__pycache__/**"}, Compression: "gz"},
		Limits:   Limits{Memory: 2 << 30, CPUs: 1, PIDs: 1024},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The example has defaults for these keys, so it does not show whether they are read.
func TestParse_nonDefaults(t *testing.T) {
	got, err := Parse("env.yaml", []byte(`
type: docker
docker: {image: i, mount_workspace: false, keep_container_after_clean: true, build: {args: {A: b}}}
environment: {include_os_env: true}
setup: {fail_fast: true}
commands: {agent_command: a}
snapshot: {keep_globs: [k], archive_save_dir: s}
`))
	want := &Environment{
		File: "env.yaml", Type: "docker",
		Docker:      Docker{Image: "i", MountWorkspace: new(false), KeepContainerAfterClean: true, Build: &Build{Args: map[string]string{"A": "b"}}},
		Environment: Variables{IncludeOSEnv: true},
		Setup:       Setup{FailFast: true},
		Commands:    Commands{AgentCommand: "a"},
		Snapshot:    Snapshot{KeepGlobs: []string{"k"}, ArchiveSaveDir: "s"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	got, err = Parse("env.yaml", []byte("{type: local, local: {requires_tty: true, shell: zsh}}"))
	if err != nil || got.Local != (Local{RequiresTTY: true, Shell: "zsh"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// examples returns the YAML documents in docs/spec.md.
func examples(t *testing.T) []string {
	page, err := os.ReadFile("../../docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		texts = append(texts, block[1])
	}
	if len(texts) != 2 {
		t.Fatalf("docs/spec.md has %d YAML examples, want 2", len(texts))
	}
	return texts
}

const top = "type: docker\ndocker:\n  image: i\n"

// Valid documents, and invalid ones with all their problems. The schema and Parse agree about each document,
// except where a schema cannot express the rule.
var documents = map[string]struct {
	text   string
	says   []string // the problems, without the file name; nil for a valid document
	beyond bool     // a schema cannot express it
}{
	"minimal docker":                {text: top},
	"minimal local":                 {text: "type: local"},
	"null is absent":                {text: "type: local\nname: null\ndocker: ~\nsetup:\nsnapshot: {compression: null}\nlimits: {memory: null}"},
	"a build is the image":          {text: "{type: docker, name: n, docker: {build: {}}}"},
	"a build with an image":         {text: "{type: docker, docker: {image: i, build: {args: {A: b}}}}"},
	"an anchor":                     {text: "type: local\nsetup: {commands: &c [a, b], eval_commands: *c}"},
	"sizes":                         {text: "{type: local, limits: {memory: 0.5g, cpus: 0.5, pids: 48}}"},
	"bytes":                         {text: "{type: local, limits: {memory: 67108864}}"},
	"no limits":                     {text: "{type: local, setup: {timeout: none}, limits: {memory: none, cpus: none, pids: none}}"},
	"a network's name":              {text: top + "  network: my_net"},
	"one user":                      {text: top + "  user: nobody"},
	"a date is text":                {text: "{type: local, environment: {env: {DAY: 2024-01-01}}}"},
	"an odd key":                    {text: "{type: local, environment: {env: {a.b-c: x}}}"},
	"a mount's mode":                {text: top + "  extra_mounts: {a: /a, b: '/b:rw', c: {bind: /c}, d: {bind: '/d:e', mode: rw}}"},
	"a duration":                    {text: "{type: local, setup: {timeout: 1h2.5m}}"},
	"nothing":                       {says: []string{"1: wanted an environment spec, found nothing"}},
	"null alone":                    {text: "# none\n~", says: []string{"2: wanted an environment spec, found nothing"}},
	"a list":                        {text: "[a]", says: []string{"1: wanted a mapping, found a list"}},
	"no type":                       {text: "name: a", says: []string{"1: type: wanted docker or local, found nothing"}},
	"null for a type":               {text: "name: a\ntype:", says: []string{"1: type: wanted docker or local, found nothing"}},
	"another type":                  {text: "type: podman", says: []string{`1: type: wanted docker or local, found "podman"`}},
	"no image":                      {text: "type: docker\ndocker: {}", says: []string{"2: docker.image: wanted an image reference such as python:3.12-slim, found nothing"}},
	"no docker":                     {text: "\ntype: docker", says: []string{"2: docker.image: wanted an image reference such as python:3.12-slim, found nothing"}},
	"null for docker":               {text: "{type: docker, docker: null}", says: []string{"1: docker.image: wanted an image reference such as python:3.12-slim, found nothing"}},
	"a build without a name":        {text: "{type: docker, docker: {build: {}}}", says: []string{"1: docker.image: wanted an image reference such as python:3.12-slim, found nothing (name the environment to tag its image fumehood:NAME)"}},
	"a bad image":                   {text: "{type: docker, docker: {image: a b}}", says: []string{`1: docker.image: wanted an image reference such as python:3.12-slim, found "a b"`}},
	"docker under local":            {text: "type: local\ndocker:\n  image: i", says: []string{"2: docker: wanted nothing under type local, found a value"}},
	"local under docker":            {text: top + "local: {}", says: []string{"4: local: wanted nothing under type docker, found a value"}},
	"a slip":                        {text: "type: local\nsetpu: {}", says: []string{`2: setpu: wanted a known key, found "setpu" (did you mean setup?)`}},
	"a slip in a slip":              {text: "type: docker\ndocker:\n  image: i\n  netwrk: x", says: []string{`4: docker.netwrk: wanted a known key, found "netwrk" (did you mean network?)`}},
	"a long unknown key":            {text: "type: local\n" + strings.Repeat("k", 100) + ": a", says: []string{"2: " + strings.Repeat("k", 60) + "...: wanted one of the keys type, name, docker, environment, setup, commands, snapshot, limits or local, found \"" + strings.Repeat("k", 60) + "...\""}},
	"an unknown key":                {text: "type: local\nlocal: {container: x}", says: []string{`2: local.container: wanted one of the keys requires_tty or shell, found "container"`}},
	"a merge key":                   {text: "type: local\nlocal: {<<: {shell: sh}}", says: []string{`2: local.<<: wanted one of the keys requires_tty or shell, found "<<"`}, beyond: true},
	"a key of a mount":              {text: top + "  extra_mounts: {a: {bind: /a, mod: rw}}", says: []string{`4: docker.extra_mounts.a.mod: wanted a known key, found "mod" (did you mean mode?)`}},
	"a key twice":                   {text: "type: local\nname: a\nname: b", says: []string{"3: name: wanted this key once, found it on line 2 too"}, beyond: true},
	"a variable twice":              {text: "type: local\nenvironment:\n  env:\n    A: a\n    A: b", says: []string{"5: environment.env.A: wanted this key once, found it on line 4 too"}, beyond: true},
	"a port twice":                  {text: top + "  ports:\n    80: 1\n    '80': 2", says: []string{"6: docker.ports.80: wanted this key once, found it on line 5 too"}, beyond: true},
	"a key that is a list":          {text: "type: local\n? [a]\n: b", says: []string{"2: wanted a key, found a list"}, beyond: true},
	"two documents":                 {text: "type: local\n---\ntype: local", says: []string{"2: wanted one document, found another"}, beyond: true},
	"invalid YAML":                  {text: "type: local\nname: [a", says: []string{"2: wanted YAML, found a syntax error: did not find expected ',' or ']'"}, beyond: true},
	"invalid YAML, line 1":          {text: "type: ]", says: []string{"1: wanted YAML, found a syntax error: did not find expected node content"}, beyond: true},
	"a tab":                         {text: "type: local\nsetup:\n\tcommands: []", says: []string{"3: wanted YAML, found a syntax error: found character that cannot start any token"}, beyond: true},
	"invalid YAML, later":           {text: "type: local\n---\n[", says: []string{"4: wanted YAML, found a syntax error: did not find expected node content"}, beyond: true},
	"an unknown anchor":             {text: "type: *t", says: []string{" wanted YAML, found a syntax error: unknown anchor 't' referenced"}, beyond: true},
	"text for a mapping":            {text: "type: local\nsetup: pip", says: []string{`2: setup: wanted a mapping, found "pip"`}},
	"text for a list":               {text: "type: local\nsetup: {commands: pip}", says: []string{`2: setup.commands: wanted a list, found "pip"`}},
	"a number in a list":            {text: "type: local\nsetup:\n  commands:\n  - a\n  - 12", says: []string{"5: setup.commands[1]: wanted text, found 12 (write it in quotes)"}},
	"null in a list":                {text: "type: local\nsetup: {commands: [~]}", says: []string{"2: setup.commands[0]: wanted text, found nothing"}},
	"text for a truth":              {text: "type: local\nsetup: {fail_fast: yes}", says: []string{`2: setup.fail_fast: wanted true or false, found "yes"`}},
	"a number for text":             {text: "type: local\ncommands: {command: 7}", says: []string{"2: commands.command: wanted text, found 7 (write it in quotes)"}},
	"a number for a user":           {text: top + "  user: 1000", says: []string{`4: docker.user: wanted a user such as "1000:1000" or nobody, found 1000 (write it in quotes)`}},
	"a bad user":                    {text: top + "  user: 'a:b:c'", says: []string{`4: docker.user: wanted a user such as "1000:1000" or nobody, found "a:b:c"`}},
	"a bad size":                    {text: "type: local\nlimits: {memory: 2 gigs}", says: []string{`2: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found "2 gigs"`}},
	"size 0":                        {text: "type: local\nlimits: {memory: 0}", says: []string{`2: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found 0`}},
	"size 0 MiB":                    {text: "type: local\nlimits: {memory: 0MiB}", says: []string{`2: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found "0MiB"`}},
	"half a byte":                   {text: "type: local\nlimits: {memory: 1.5}", says: []string{`2: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found 1.5`}},
	"too small limits":              {text: "type: local\nlimits:\n  memory: 1\n  pids: 5\n  disk: 1023", says: []string{`3: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found 1`, `4: limits.pids: wanted a whole number from 48 on, or none, found 5`, `5: limits.disk: wanted a size from 1MiB on such as 512MiB or 2g, or none, found 1023`}},
	"too little memory as text":     {text: "type: local\nlimits: {memory: 5MiB}", says: []string{`2: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found "5MiB"`}, beyond: true},
	"a size beyond all":             {text: "type: local\nlimits: {memory: 123456789123456789123456789g}", says: []string{`2: limits.memory: wanted a size from 6MiB on such as 512MiB or 2g, or none, found "123456789123456789123456789g"`}, beyond: true},
	"cpus 0":                        {text: "type: local\nlimits: {cpus: 0}", says: []string{`2: limits.cpus: wanted a number above 0, or none, found 0`}},
	"cpus without end":              {text: "type: local\nlimits: {cpus: .inf}", says: []string{`2: limits.cpus: wanted a number above 0, or none, found .inf`}, beyond: true},
	"cpus as text":                  {text: "type: local\nlimits: {cpus: '2'}", says: []string{`2: limits.cpus: wanted a number above 0, or none, found "2"`}},
	"half a process":                {text: "type: local\nlimits: {pids: 1.5}", says: []string{`2: limits.pids: wanted a whole number from 48 on, or none, found 1.5`}},
	"processes below 0":             {text: "type: local\nlimits: {pids: -1}", says: []string{`2: limits.pids: wanted a whole number from 48 on, or none, found -1`}},
	"a number for a duration":       {text: "type: local\nsetup: {timeout: 600}", says: []string{`2: setup.timeout: wanted a duration such as 90s or 10m, or none, found 600`}},
	"a bad duration":                {text: "type: local\nsetup: {timeout: 10 minutes}", says: []string{`2: setup.timeout: wanted a duration such as 90s or 10m, or none, found "10 minutes"`}},
	"a duration of 0":               {text: "type: local\nsetup: {timeout: 0s}", says: []string{`2: setup.timeout: wanted a duration such as 90s or 10m, or none, found "0s"`}},
	"a duration below 0":            {text: "type: local\nsetup: {timeout: -1s}", says: []string{`2: setup.timeout: wanted a duration such as 90s or 10m, or none, found "-1s"`}},
	"a duration beyond all":         {text: "type: local\nsetup: {timeout: 9999999999h}", says: []string{`2: setup.timeout: wanted a duration such as 90s or 10m, or none, found "9999999999h"`}, beyond: true},
	"text for a port":               {text: top + "  ports:\n    8080: http", says: []string{`5: docker.ports.8080: wanted a port from 1 to 65535, found "http"`}},
	"invalid host port":             {text: top + "  ports: {65536: 1}", says: []string{`4: docker.ports: wanted a port from 0 to 65535, found "65536"`}},
	"container port 0":              {text: top + "  ports: {80: 0}", says: []string{`4: docker.ports.80: wanted a port from 1 to 65535, found 0`}},
	"container port 65536":          {text: top + "  ports: {80: 65536}", says: []string{`4: docker.ports.80: wanted a port from 1 to 65535, found 65536`}},
	"a host port for many":          {text: top + "  ports: {80: [1, 2]}", says: []string{`4: docker.ports.80: wanted a port from 1 to 65535, found a list`}},
	"invalid free port":             {text: top + "  ports: {0: [1, x]}", says: []string{`4: docker.ports.0: wanted a port from 1 to 65535, found "x"`}},
	"no port":                       {text: top + "  ports: {80: ~}", says: []string{`4: docker.ports.80: wanted a port from 1 to 65535, found nothing`}},
	"a bad mode":                    {text: top + "  extra_mounts: {a: {bind: /a, mode: rwx}}", says: []string{`4: docker.extra_mounts.a.mode: wanted ro or rw, found "rwx"`}},
	"a bad mode in text":            {text: top + "  extra_mounts: {a: '/a:rwx'}", says: []string{`4: docker.extra_mounts.a: wanted an absolute path in the container, optionally with :ro or :rw, or {bind: PATH, mode: ro or rw}, found "/a:rwx"`}},
	"a relative bind":               {text: top + "  extra_mounts: {a: {bind: a}}", says: []string{`4: docker.extra_mounts.a.bind: wanted an absolute path in the container that is not its root, found "a"`}},
	"no bind":                       {text: top + "  extra_mounts: {a: {mode: rw}}", says: []string{`4: docker.extra_mounts.a.bind: wanted an absolute path in the container that is not its root, found nothing`}},
	"a mount of the root":           {text: top + "  extra_mounts: {a: /}", says: []string{`4: docker.extra_mounts.a: wanted an absolute path in the container, optionally with :ro or :rw, or {bind: PATH, mode: ro or rw}, found "/"`}},
	"a list of mounts":              {text: top + "  extra_mounts: ['a:/a']", says: []string{`4: docker.extra_mounts: wanted a mapping, found a list`}},
	"no mount":                      {text: top + "  extra_mounts: {a: ~}", says: []string{`4: docker.extra_mounts.a: wanted an absolute path in the container, optionally with :ro or :rw, or {bind: PATH, mode: ro or rw}, found nothing`}},
	"an empty host path":            {text: top + "  extra_mounts: {'': /a}", says: []string{`4: docker.extra_mounts: wanted a path of the host, found ""`}},
	"a relative workdir":            {text: top + "  workdir: work", says: []string{`4: docker.workdir: wanted an absolute path in the container that is not its root, found "work"`}},
	"a binary that a shell reads":   {text: top + "  binary: \"/opt/docker; reboot\"", says: []string{`4: docker.binary: wanted docker, podman, nerdctl or an absolute path without spaces and quotes, found "/opt/docker; reboot"`}},
	"another binary":                {text: top + "  binary: dokcer", says: []string{`4: docker.binary: wanted docker, podman, nerdctl or an absolute path without spaces and quotes, found "dokcer"`}},
	"a folder for a binary":         {text: top + "  binary: /opt/bin/", says: []string{`4: docker.binary: wanted docker, podman, nerdctl or an absolute path without spaces and quotes, found "/opt/bin/"`}},
	"a relative binary":             {text: top + "  binary: bin/docker", says: []string{`4: docker.binary: wanted docker, podman, nerdctl or an absolute path without spaces and quotes, found "bin/docker"`}},
	"a bad network":                 {text: top + "  network: a b", says: []string{`4: docker.network: wanted none, bridge, host or a network's name, found "a b"`}},
	"a bad name":                    {text: "type: local\nname: a/b", says: []string{`2: name: wanted letters, digits, '.', '_' and '-', as in an image's tag, found "a/b"`}},
	"read-only compression":         {text: "type: local\nsnapshot: {compression: bz2}"},
	"another compression":           {text: "type: local\nsnapshot: {compression: rar}", says: []string{`2: snapshot.compression: wanted gz, xz, zst, bz2 or none, found "rar"`}},
	"a variable with a number":      {text: "type: local\nenvironment: {env: {TOKEN: 12345}}", says: []string{"2: environment.env.TOKEN: wanted text, found a number (write it in quotes)"}},
	"a variable with a truth":       {text: "type: local\nenvironment: {env: {TOKEN: true}}", says: []string{"2: environment.env.TOKEN: wanted text, found true or false (write it in quotes)"}},
	"a variable with a tag":         {text: "type: local\nenvironment: {env: {TOKEN: !s secret}}", says: []string{"2: environment.env.TOKEN: wanted text, found a value with the tag !s (write it in quotes)"}, beyond: true},
	"variables as text":             {text: "type: local\nenvironment: {env: TOKEN=secret}", says: []string{"2: environment.env: wanted a mapping, found text"}},
	"variables as a list":           {text: "type: local\nenvironment: {env: [TOKEN=secret]}", says: []string{"2: environment.env: wanted a mapping, found a list"}},
	"an argument as a number":       {text: top + "  build: {args: {TOKEN: 12345}}", says: []string{"4: docker.build.args.TOKEN: wanted text, found a number (write it in quotes)"}},
	"a NUL byte in a variable name": {text: "type: local\nenvironment: {env: {\"A\\0\": b}}", says: []string{"2: environment.env: wanted a variable's name, found a NUL byte"}, beyond: true},
	"a mount with a NUL byte":       {text: top + "  extra_mounts: {\"a\\0\": /a}", says: []string{`4: docker.extra_mounts: wanted a path of the host, found "a\x00"`}, beyond: true},
	"a mount to a NUL byte":         {text: top + "  extra_mounts: {a: \"/a\\0\"}", says: []string{`4: docker.extra_mounts.a: wanted an absolute path in the container, optionally with :ro or :rw, or {bind: PATH, mode: ro or rw}, found "/a\x00"`}, beyond: true},
	"a variable with nothing":       {text: "type: local\nenvironment: {env: {TOKEN: }}", says: []string{"2: environment.env.TOKEN: wanted text, found nothing (write it in quotes)"}},
	"a variable with a list":        {text: "type: local\nenvironment: {env: {TOKEN: [s]}}", says: []string{"2: environment.env.TOKEN: wanted text, found a list"}},
	"a variable's bad name":         {text: "type: local\nenvironment: {env: {A=B: s}}", says: []string{`2: environment.env: wanted a variable's name, found an empty name or one with '=' (write NAME: VALUE)`}},
	"a variable with a NUL byte":    {text: "type: local\nenvironment: {env: {A: \"s\\0\"}}", says: []string{"2: environment.env.A: wanted text, found a NUL byte"}, beyond: true},
	"a command with a NUL byte":     {text: "type: local\nsetup: {commands: [\"s\\0\"]}", says: []string{"2: setup.commands[0]: wanted text, found a NUL byte"}, beyond: true},
	"a tag":                         {text: "type: local\ncommands: {command: !secret x}", says: []string{"2: commands.command: wanted text, found x (write it in quotes)"}, beyond: true},
	"all problems at once":          {text: "type: dokcer\ndocker: {image: [], ports: {x: 1}}\nsetup: {timeout: 1}\nx: y", says: []string{`1: type: wanted docker or local, found "dokcer"`, "2: docker.image: wanted an image reference such as python:3.12-slim, found a list", `2: docker.ports: wanted a port from 0 to 65535, found "x"`, "3: setup.timeout: wanted a duration such as 90s or 10m, or none, found 1", `4: x: wanted one of the keys type, name, docker, environment, setup, commands, snapshot, limits or local, found "x"`}},
	"ordered by line":               {text: "local: {shell: [], x: 1}\nname: []\ntype: docker\ndocker: {image: i}", says: []string{"1: local.shell: wanted text, found a list", `1: local.x: wanted one of the keys requires_tty or shell, found "x"`, "1: local: wanted nothing under type docker, found a value", "2: name: wanted letters, digits, '.', '_' and '-', as in an image's tag, found a list"}},
	"an alias into itself":          {text: "type: local\nsetup: &s {commands: *s}", says: []string{"2: setup.commands: wanted a list, found a mapping"}, beyond: true},
}

func TestParse_problems(t *testing.T) {
	for name, c := range documents {
		t.Run(name, func(t *testing.T) {
			e, err := Parse("env.yaml", []byte(c.text))
			if c.says == nil {
				if err != nil || e == nil {
					t.Fatalf("got %v, want no problem", err)
				}
				return
			}
			want := "env.yaml:" + strings.Join(c.says, "\nenv.yaml:")
			if e != nil || err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("class: got %v, want ErrConfig", fumehood.ClassOf(err))
			}
			var p *Problem
			if !errors.As(err, &p) || p.File != "env.yaml" {
				t.Errorf("the error has no Problem: %+v", p)
			}
		})
	}
}

func TestParse_keepGlobs(t *testing.T) {
	for text, want := range map[string][]string{"null": nil, "[]": {}, "[a]": {"a"}} {
		e, err := Parse("env.yaml", []byte("type: local\nsnapshot: {keep_globs: "+text+"}"))
		if err != nil || !reflect.DeepEqual(e.Snapshot.KeepGlobs, want) {
			t.Errorf("%s: got %#v, %v; want %#v", text, e.Snapshot.KeepGlobs, err, want)
		}
	}
}

func TestParse_limits(t *testing.T) {
	e, err := Parse("env.yaml", []byte("{type: local, limits: {memory: 512MiB, cpus: none, pids: none}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fumehood.Limits(e.Limits), (fumehood.Limits{Memory: 512 << 20, CPUs: fumehood.NoLimit, PIDs: fumehood.NoLimit}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEnvironment_WithDefaults(t *testing.T) {
	build := &Build{}
	e := Environment{Type: TypeDocker, Name: "n", Docker: Docker{Build: build}, Commands: Commands{Command: "python"}}
	got := e.WithDefaults()
	want := Environment{
		Type: TypeDocker, Name: "n",
		Docker: Docker{
			Image: "fumehood:n", Binary: "docker", Workdir: "/workspace", MountWorkspace: new(true), Network: "none",
			Build: &Build{Context: ".", Dockerfile: "Dockerfile"},
		},
		Setup:    Setup{Timeout: 10 * time.Minute},
		Commands: Commands{Command: "python", AgentCommand: "python"},
		Snapshot: Snapshot{Compression: "gz"},
		Limits:   Limits{Memory: 2 << 30, CPUs: fumehood.NoLimit, PIDs: 1024},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if build.Context != "" || e.Docker.MountWorkspace != nil {
		t.Error("WithDefaults has changed the original")
	}
	if again := want.WithDefaults(); !reflect.DeepEqual(again, want) {
		t.Errorf("a set value has changed: %+v", again)
	}
}

// Aliases of aliases of aliases: 3^30 texts if all were followed.
func TestParse_aliases(t *testing.T) {
	var b strings.Builder
	b.WriteString("type: local\nsetup:\n  a0: &a0 [x, x, x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1)
	}
	b.WriteString("  commands: *a29\n")
	_, err := Parse("bomb.yaml", []byte(b.String()))
	if err == nil || len(err.Error()) > 10_000 || !strings.HasSuffix(err.Error(), "\nbomb.yaml: 13 more problems") {
		t.Errorf("got %v", err)
	}
}

func TestParse_longText(t *testing.T) {
	_, err := Parse("env.yaml", []byte("type: "+strings.Repeat("ä", 1000)))
	if err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), `ä..."`) {
		t.Errorf("got %v", err)
	}
}

func TestParse_escapeCodes(t *testing.T) {
	_, err := Parse("env.yaml", []byte(`{type: local, "a\e[2J\nb": c, commands: {command: !x "\e[2J"}}`))
	if err == nil || strings.Count(err.Error(), "\n") != 1 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good, large := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "large.yaml")
	for file, text := range map[string]string{good: "type: local", large: "type: local\n#" + strings.Repeat("x", maxSpec)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := Load(good); err != nil || e.File != good || e.Type != TypeLocal {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := Load(large); !errors.Is(err, fumehood.ErrConfig) || err.Error() != large+": wanted at most 1MiB, found more" {
		t.Errorf("a large file: got %v", err)
	}
	missing := filepath.Join(dir, "missing.yaml")
	if _, err := Load(missing); !errors.Is(err, fumehood.ErrConfig) || strings.Count(err.Error(), missing) != 1 {
		t.Errorf("a missing file: got %v", err)
	}
}

// FuzzParse checks that no document makes Parse panic, that a problem is always an ErrConfig, and that a valid
// document stays valid with its defaults.
func FuzzParse(f *testing.F) {
	for _, c := range documents {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := Parse("env.yaml", text)
		if (e == nil) == (err == nil) || err != nil && !errors.Is(err, fumehood.ErrConfig) {
			t.Fatalf("got %+v, %v", e, err)
		}
		if e != nil {
			e.WithDefaults()
		}
	})
}
