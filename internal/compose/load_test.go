package compose

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// project writes files, by name, into a new folder and returns its path.
func project(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load writes content to a file and loads it.
func load(t testing.TB, content string, src fumehood.Compose) (*Project, error) {
	t.Helper()
	dir := project(t, map[string]string{"compose.yaml": content})
	src.Files = append([]string{filepath.Join(dir, "compose.yaml")}, src.Files...)
	return Load(t.Context(), "box", src)
}

// loadGood is load for valid content. It fails the test on an error.
func loadGood(t testing.TB, content string, src fumehood.Compose) *Project {
	t.Helper()
	p, err := load(t, content, src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func env(t *testing.T, p *Project, service, name string) string {
	t.Helper()
	v, ok := p.as.Services[service].Environment[name]
	if !ok || v == nil {
		return "(unset)"
	}
	return *v
}

func TestLoad_interpolation(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_ALLOWED", `pa$$word ${X} $Y`)
	t.Setenv("FUMEHOOD_TEST_SECRET", "hidden")
	p := loadGood(t, `
services:
  web:
    image: a
    mem_limit: ${MEM-0.5gb}
    environment:
      ALLOWED: ${FUMEHOOD_TEST_ALLOWED}
      HIDDEN: "${FUMEHOOD_TEST_SECRET:-not seen}"
      FUMEHOOD_TEST_SECRET:
      FUMEHOOD_TEST_ALLOWED:
      HOME:
      DOLLARS: $$HOME $${X} 100$$
      SAMPLE: ${SAMPLE_METADATA_FLAG}
      NESTED: ${NONE:-${GIVEN}}
      EMPTY: "${EMPTY-default}"
      REPLACED: "${GIVEN:+yes}"
`, fumehood.Compose{HostEnv: []string{"FUMEHOOD_TEST_ALLOWED", "FUMEHOOD_TEST_NOT_SET"}, Env: map[string]string{
		"SAMPLE_METADATA_FLAG": `FLAG{$1 $$ ${2} \ "'` + "\n}", "GIVEN": "$GIVEN", "EMPTY": "",
	}})
	if got := int64(p.as.Services["web"].MemLimit); got != 512<<20 {
		t.Errorf("mem_limit is %d", got)
	}
	for name, want := range map[string]string{
		"ALLOWED": `pa$$word ${X} $Y`, "HIDDEN": "not seen", "FUMEHOOD_TEST_SECRET": "(unset)", "FUMEHOOD_TEST_ALLOWED": `pa$$word ${X} $Y`,
		"HOME": "(unset)", "DOLLARS": "$HOME ${X} 100$", "SAMPLE": `FLAG{$1 $$ ${2} \ "'` + "\n}", "NESTED": "$GIVEN", "EMPTY": "", "REPLACED": "yes",
	} {
		if got := env(t, p, "web", name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestLoad_envFiles(t *testing.T) {
	dir := project(t, map[string]string{
		"compose.yaml": `
services:
  web:
    image: ${IMAGE}
    environment: {WHO: "${WHO}", B: b2}
    env_file: [service.env, {path: none.env, required: false}]
`,
		".env":        "IMAGE=from-dot-env\nWHO=dot\n",
		"other.env":   "IMAGE=from-other\n",
		"service.env": "A=a1\nB=b1\nQUOTED='$A stays'\nWHOM=\"${WHO}\"\n",
	})
	file := []string{filepath.Join(dir, "compose.yaml")}
	for _, tt := range []struct {
		name       string
		src        fumehood.Compose
		image, who string
	}{
		{"the folder's .env by default", fumehood.Compose{}, "from-dot-env", "dot"},
		{"a named file in its place", fumehood.Compose{EnvFiles: []string{filepath.Join(dir, "other.env")}}, "from-other", ""},
		{"the caller's values above all", fumehood.Compose{Env: map[string]string{"IMAGE": "given"}}, "given", "dot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.src.Files = file
			p, err := Load(t.Context(), "box", tt.src)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.as.Services["web"].Image; got != tt.image {
				t.Errorf("the image is %q, want %q", got, tt.image)
			}
			for name, want := range map[string]string{"WHO": tt.who, "A": "a1", "B": "b2", "QUOTED": "$A stays", "WHOM": tt.who} {
				if got := env(t, p, "web", name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestLoad_rawEnvFiles(t *testing.T) {
	dir := project(t, map[string]string{
		"compose.yaml": `
services:
  web:
    image: a
    environment: {B: own}
    env_file: [first.env, {path: raw.env, format: raw}, last.env, {path: none.env, format: raw, required: false}]
`,
		"first.env": "A=first\nC=first\n",
		"raw.env":   "\ufeff# A=0\n  A=x#y $Z \"q\" 'r' ${X \r\nB=raw\nC==raw\n\nD=raw\nGIVEN\nMISSING\nEMPTY=",
		"last.env":  "D=last\n",
	})
	src := fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}, Env: map[string]string{"GIVEN": "$x"}}
	p, err := Load(t.Context(), "box", src)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"A": `x#y $Z "q" 'r' ${X `, "B": "own", "C": "=raw", "D": "last", "GIVEN": "$x", "MISSING": "(unset)", "EMPTY": "",
	} {
		if got := env(t, p, "web", name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for content, want := range map[string]string{
		"A=1\n=x": "raw.env:2: wanted NAME=VALUE", "A B=x": "raw.env:1: wanted", "A=\xff": "raw.env:1: wanted", "A=\x00": "raw.env:1: wanted",
	} {
		if err := os.WriteFile(filepath.Join(dir, "raw.env"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(t.Context(), "box", src); !errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "compose.yaml:6") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestProject_Warnings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		env   map[string]string
		want  string // without files' folder; empty without a warning
	}{
		"nothing": {files: map[string]string{"compose.yaml": `
x-updated: 2024-01-02
services:
  a:
    image: i
    cpus: 1.0
    environment: {A: "2024-01-02", B: yes, C: 12:30, D: 17, E: 1.5, F: null, G: on, H: '0755', I: true, J: !!str 2024-01-01, K: 08:00}
    configs: [{source: c, mode: 0440}, {source: c, target: /d, mode: 0o440}, {source: c, target: /e, mode: "440"}, {source: c, target: /f, mode: 292}]
    volumes: [{type: tmpfs, target: /t, tmpfs: {mode: 01777}}]
configs: {c: {content: x}}
`}},
		"date":           {files: map[string]string{"compose.yaml": "services:\n  a:\n    image: i\n    environment:\n      D: 2024-01-02\n"}, want: "services.a.environment.D compose.yaml:5 " + readAsTime},
		"time":           {files: map[string]string{"compose.yaml": "services:\n  a:\n    image: i\n    labels: {D: 2024-01-02 03:04:05}\n"}, want: "services.a.labels.D compose.yaml:4 " + readAsTime},
		"octal":          {files: map[string]string{"compose.yaml": "services: {a: {image: i, environment: {D: 0755}}}"}, want: "services.a.environment.D compose.yaml:1 " + readAsNumber},
		"trailing zero":  {files: map[string]string{"compose.yaml": "services: {a: {image: i, environment: {D: 1.10}}}"}, want: "services.a.environment.D compose.yaml:1 " + readAsNumber},
		"underscore":     {files: map[string]string{"compose.yaml": "services: {a: {image: i, environment: {D: 1_000}}}"}, want: "services.a.environment.D compose.yaml:1 " + readAsNumber},
		"large":          {files: map[string]string{"compose.yaml": "services: {a: {image: i, environment: {D: 123456789012345678901}}}"}, want: "services.a.environment.D compose.yaml:1 " + readAsNumber},
		"merged":         {files: map[string]string{"compose.yaml": "x-e: &e\n  D: 1e3\nservices: {a: {image: i, environment: {<<: *e, E: x}}}"}, want: "services.a.environment.D compose.yaml:2 " + readAsNumber},
		"merged list":    {files: map[string]string{"compose.yaml": "x-e: &e\n  D: 0x1\nservices: {a: {image: i, environment: {<<: [*e], E: x}}, b: {image: i, environment: *e}}"}, want: "services.a.environment.D compose.yaml:2 " + readAsNumber},
		"tmpfs mode":     {files: map[string]string{"compose.yaml": "services: {a: {image: i, volumes: [{type: tmpfs, target: /t, tmpfs: {mode: 1777}}]}}"}, want: "services.a.volumes.0.tmpfs.mode compose.yaml:1 the mode 1777 is decimal, 03361 in octal: write 01777"},
		"secret's mode":  {files: map[string]string{"compose.yaml": "services: {a: {image: i, secrets: [{source: s, mode: 440}]}}\nsecrets: {s: {environment: S}}"}, env: map[string]string{"S": "x"}, want: "services.a.secrets.0.mode compose.yaml:1 the mode 440 is decimal, 0670 in octal: write 0440"},
		"included":       {files: map[string]string{"compose.yaml": "include: [p/c.yaml]\nservices: {a: {image: i}}", "p/c.yaml": "services: {b: {image: i, labels: {d: 2024-01-02}}}"}, want: "services.b.labels.d p/c.yaml:1 " + readAsTime},
		"include's file": {files: map[string]string{"compose.yaml": "services: {a: {image: i}}\ninclude: [{path: c.yaml, env_file: c.env}]", "c.yaml": "services: {b: {image: i, labels: {d: '$A$B'}}}", ".env": "A=1\nB=1\n", "c.env": "A=2\nB=1\nC=1\n"}, want: "include.env_file compose.yaml:2 its A is not used: the variable files of the including project set it too, and have precedence"},
		"given variable": {files: map[string]string{"compose.yaml": "services: {a: {image: i}}\ninclude: [{path: c.yaml, env_file: c.env}]", "c.yaml": "services: {b: {image: i}}", "c.env": "A=2\n"}, env: map[string]string{"A": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t, c.files)
			p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}, Env: c.env})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, w := range p.Warnings() {
				all = append(all, strings.ReplaceAll(strings.Join([]string{w.Key, w.At, w.Reason}, " "), dir+"/", ""))
			}
			if got := strings.Join(all, "\n"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, w := range p.Warnings() {
				if !slices.ContainsFunc(p.notes, func(c Change) bool { return c.Key == w.Key && strings.Contains(c.Reason, w.Reason) }) {
					t.Errorf("the notes lack %+v", w)
				}
			}
		})
	}
}

func TestLoad_unsetVariable(t *testing.T) {
	p := loadGood(t, "services:\n  web: {image: a, environment: {A: '${NOT_SET}', B: '${WITH_DEFAULT-1}', C: '$COMPOSE_PROJECT_NAME'}}\n", fumehood.Compose{})
	if len(p.notes) != 1 || p.notes[0].Key != "${NOT_SET}" {
		t.Errorf("the notes are %v", p.notes)
	}
}

func TestLoad_errors(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"an unknown key":              {"services:\n  web:\n    image: a\n    imagee: b\n", []string{"compose.yaml:4", "services.web", "imagee"}},
		"a wrong type":                {"services:\n  web:\n    image: a\n    ports: 3\n", []string{"compose.yaml:4", "services.web.ports"}},
		"an unknown top-level key":    {"services: {web: {image: a}}\nservice: {}\n", []string{"service"}},
		"no YAML":                     {"services:\n  web: [\n", []string{"compose.yaml"}},
		"an undefined network":        {"services:\n  web:\n    image: a\n    networks: [x]\n", []string{"compose.yaml:2", `"web"`, "network x"}},
		"an undefined dependency":     {"services:\n  web:\n    image: a\n    depends_on: [db]\n", []string{"compose.yaml:2", `"web"`, `"db"`}},
		"a variable that must be":     {"services:\n  web:\n    image: ${X:?say which}\n", []string{"compose.yaml:3", "services.web.image", "X", "say which"}},
		"a bad interpolation":         {"services:\n  web:\n    image: ${\n", []string{"compose.yaml:3", "services.web.image"}},
		"not a number":                {"services:\n  web:\n    image: a\n    pids_limit: ${X:-many}\n", []string{"compose.yaml:4", "services.web.pids_limit"}},
		"no image":                    {"services:\n  web: {command: a}\n", []string{`"web"`, "image"}},
		"a missing env file":          {"services:\n  web: {image: a, env_file: none.env}\n", []string{"none.env"}},
		"an empty file":               {"", []string{"empty"}},
		"no service":                  {"services: {}\n", []string{"no service"}},
		"a cycle":                     {"services:\n  a: {image: a, depends_on: [b]}\n  b: {image: b, depends_on: [a]}\n", []string{"cycle"}},
		"a file that extends none":    {"services:\n  web: {extends: {file: none.yaml, service: a}}\n", []string{"none.yaml"}},
		"x-fumehood: an unknown key":  {"x-fumehood:\n  egres: internet\nservices: {web: {image: a}}\n", []string{"compose.yaml:2", "x-fumehood.egres", "unknown setting"}},
		"x-fumehood: no mapping":      {"x-fumehood: 3\nservices: {web: {image: a}}\n", []string{"compose.yaml:1", "x-fumehood", "mapping"}},
		"x-fumehood: another egress":  {"x-fumehood: {egress: all}\nservices: {web: {image: a}}\n", []string{"compose.yaml:1", "x-fumehood.egress", `"all"`}},
		"x-fumehood: a list":          {"x-fumehood:\n  egress: {allow: [example.com]}\nservices: {web: {image: a}}\n", []string{"compose.yaml:2", "x-fumehood.egress", "not supported yet"}},
		"a date as a path":            {"services: {a: {image: i, volumes: [{type: bind, source: 2001-01-01, target: /x}]}}\n", []string{"compose.yaml:1: services.a.volumes.0.source: an unquoted date is read as a time: quote it"}},
		"a date as an argument":       {"services:\n  a:\n    image: i\n    command: [echo, 2001-01-01]\n", []string{"compose.yaml:4: services.a.command.1: an unquoted date"}},
		"a date as a folder":          {"x-dates: 2001-01-01\nservices:\n  a:\n    image: i\n    working_dir: 2001-01-01\n", []string{"compose.yaml:5: services.a.working_dir: an unquoted date"}},
		"infinity as a variable":      {"services:\n  a:\n    image: i\n    environment:\n      I: .inf\n", []string{"compose.yaml:5: services.a.environment.I: the value is infinite"}},
		"infinity as a number":        {"services:\n  a:\n    image: i\n    scale: -.INF\n", []string{"compose.yaml:4: services.a.scale: the value is infinite"}},
		"infinity as a text":          {"services:\n  a:\n    image: i\n    cpus: '${CPUS:-inf}'\n", []string{"compose.yaml:4: services.a.cpus: the value is infinite"}},
		"no number in an extension":   {"x-a: {b: [1, .NaN]}\nservices: {a: {image: i}}\n", []string{"compose.yaml:1: x-a.b: the value is infinite or not a number"}},
		"a wrong size":                {"services:\n  a:\n    image: i\n    mem_limit: much\n    shm_size: more\n", []string{"compose.yaml:4: 'services[a].mem_limit' invalid size: 'much'", "compose.yaml:5: "}},
		"a number as a key":           {"services:\n  a:\n    image: i\n    environment: {1: x}\n", []string{"compose.yaml: line 4: a key is not a text: 1"}},
		"x-fumehood: no bool":         {"x-fumehood:\n  keep_ports: 1\nservices: {web: {image: a}}\n", []string{"compose.yaml:2", "x-fumehood.keep_ports"}},
		"x-default: no bool":          {"services:\n  web:\n    image: a\n    x-default: please\n", []string{"compose.yaml:4", "services.web.x-default"}},
		"x-local: no bool":            {"services:\n  web:\n    image: a\n    x-local: 1\n", []string{"compose.yaml:4", "services.web.x-local"}},
		"two that say x-default":      {"services:\n  a: {image: a, x-default: true}\n  b: {image: a, x-default: true}\n", []string{"compose.yaml:3", "services.b.x-default", "service a"}},
		"a provider":                  {"services:\n  web:\n    provider: {type: vpn}\n", []string{"compose.yaml:3", "services.web.provider", "cannot be honored"}},
		"a model":                     {"services:\n  web:\n    image: a\n    models: [m]\nmodels: {m: {model: x}}\n", []string{"compose.yaml:4", "services.web.models"}},
		"pre_start":                   {"services:\n  web:\n    image: a\n    pre_start: [{command: a}]\n", []string{"services.web.pre_start"}},
		"pre_stop":                    {"services:\n  web:\n    image: a\n    pre_stop: [{command: a}]\n", []string{"services.web.pre_stop"}},
		"credential_spec":             {"services:\n  web:\n    image: a\n    credential_spec: {file: a}\n", []string{"services.web.credential_spec"}},
		"isolation":                   {"services:\n  web:\n    image: a\n    isolation: hyperv\n", []string{"services.web.isolation"}},
		"placement":                   {"services:\n  web:\n    image: a\n    deploy:\n      placement: {constraints: [node.role == manager]}\n", []string{"compose.yaml:5", "services.web.deploy.placement", "clusters"}},
		"reserved processors":         {"services:\n  web:\n    image: a\n    deploy: {resources: {reservations: {cpus: '1'}}}\n", []string{"services.web.deploy.resources.reservations.cpus"}},
		"a job":                       {"services:\n  web:\n    image: a\n    deploy: {mode: replicated-job}\n", []string{"services.web.deploy.mode"}},
		"a cluster's labels":          {"services:\n  web:\n    image: a\n    deploy: {labels: {a: b}}\n", []string{"services.web.deploy.labels"}},
		"a virtual address":           {"services:\n  web:\n    image: a\n    deploy: {endpoint_mode: vip}\n", []string{"services.web.deploy.endpoint_mode"}},
		"a delay between restarts":    {"services:\n  web:\n    image: a\n    deploy: {restart_policy: {delay: 5s}}\n", []string{"services.web.deploy.restart_policy"}},
		"a label of ours":             {"services:\n  web:\n    image: a\n    labels:\n      fumehood.owner: me\n", []string{"compose.yaml:5", "services.web.labels.fumehood.owner"}},
		"a label of Compose's":        {"services: {web: {image: a, networks: [n]}}\nnetworks:\n  n:\n    labels: {com.docker.compose.project: me}\n", []string{"compose.yaml:4", "networks.n.labels.com.docker.compose.project"}},
		"an external secret":          {"services: {web: {image: a, secrets: [s]}}\nsecrets:\n  s: {external: true}\n", []string{"compose.yaml:3", "secrets.s", "cluster"}},
		"a secret of no variable":     {"services: {web: {image: a, secrets: [s]}}\nsecrets:\n  s: {environment: NOT_SET}\n", []string{"compose.yaml:3", "secrets.s.environment", "NOT_SET"}},
		"a mode for a file":           {"services:\n  web:\n    image: a\n    secrets:\n    - {source: s, mode: 0400}\nsecrets:\n  s: {file: ./s}\n", []string{"compose.yaml:4", "services.web.secrets", "uid, gid and mode"}},
		"a config in read-only":       {"services:\n  web:\n    image: a\n    read_only: true\n    configs: [c]\nconfigs:\n  c: {content: text}\n", []string{"compose.yaml:5", "services.web.configs", "read-only"}},
		"a mount over the guest":      {"services:\n  web:\n    image: a\n    tmpfs: /.fumehood/x\n", []string{"services.web.tmpfs", "reserved"}},
		"a named pipe":                {"services:\n  web:\n    image: a\n    volumes:\n    - {type: npipe, source: a, target: /b}\n", []string{"services.web.volumes", "npipe"}},
		"SCTP on an internal network": {"services:\n  web:\n    image: a\n    ports: ['53:53/sctp']\n", []string{"compose.yaml:4", "services.web.ports", "53/sctp"}},
		"too many containers":         {"services:\n  web:\n    image: a\n    scale: 99999999999\n", []string{"compose.yaml:4", "services.web.scale"}},
		"an image that is remote":     {"include: ['oci://example.com/a:b']\nservices: {web: {image: a}}\n", []string{"example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.file, fumehood.Compose{})
			if err == nil {
				t.Fatal("Load succeeded")
			}
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("not an ErrConfig: %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in the error: %v", want, err)
				}
			}
			t.Log(err)
		})
	}
}

func TestLoad_badFile(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{filepath.Join(dir, "none.yaml"), dir, os.DevNull} {
		if _, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{file}}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestLoad_canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Load(ctx, "box", fumehood.Compose{Files: []string{"none.yaml"}})
	if !errors.Is(err, fumehood.ErrCanceled) {
		t.Errorf("got %v", err)
	}
}

func TestLoad_masking(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_SECRET", "s3cret")
	src := fumehood.Compose{HostEnv: []string{"FUMEHOOD_TEST_SECRET"}}
	for _, key := range []string{"pids_limit: ${FUMEHOOD_TEST_SECRET}", "volumes: ['/${FUMEHOOD_TEST_SECRET}:/x']", "volumes: [{type: '${FUMEHOOD_TEST_SECRET}', target: /x}]"} {
		_, err := load(t, "services:\n  web:\n    image: a\n    "+key+"\n", src)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v", key, err)
		}
	}
	src.AllowUnsafe = true
	p := loadGood(t, "services:\n  web:\n    image: a\n    volumes: ['/${FUMEHOOD_TEST_SECRET}:/x']\n", src)
	if len(p.notes) != 1 || strings.Contains(p.notes[0].String(), "s3cret") {
		t.Errorf("the notes are %v", p.notes)
	}
}

func TestLoad_defaultService(t *testing.T) {
	const three = "services:\n  c: {image: a}\n  a: {image: a}\n  b: {image: a, profiles: [p]}\n"
	for _, tt := range []struct {
		name, file, wanted string
		want               string
	}{
		{"the one that is wanted", three, "a", "a"},
		{"one that is not there", three, "b", ""},
		{"the one named default", "services:\n  a: {image: a, x-default: true}\n  default: {image: a}\n", "", "default"},
		{"the one that says so", "services:\n  a: {image: a}\n  b: {image: a, x-default: true}\n", "", "b"},
		{"x-default: false", "services:\n  a: {image: a, x-default: false}\n  b: {image: a}\n", "", "a"},
		{"the only one", "services: {only: {image: a}}\n", "", "only"},
		{"the first in the file", three, "", "c"},
		{"the first that is started", "services:\n  a: {image: a, scale: 0}\n  b: {image: a, profiles: [p]}\n  c: {image: a}\n", "", "c"},
		{"none", "services:\n  a: {image: a, profiles: [p]}\n", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := load(t, tt.file, fumehood.Compose{Service: tt.wanted})
			switch {
			case tt.want == "":
				if !errors.Is(err, fumehood.ErrConfig) {
					t.Errorf("got %v", err)
				}
			case err != nil:
				t.Error(err)
			case p.main != tt.want || p.Services()[0].Name != tt.want:
				t.Errorf("the default service is %s, the first one %s", p.main, p.Services()[0].Name)
			}
		})
	}
}

func TestLoad_merging(t *testing.T) {
	dir := project(t, map[string]string{
		"compose.yaml": `
include: [sub/inner.yaml]
x-base: &base
  image: a
  environment: &env {A: "1"}
services:
  web:
    <<: *base
    environment: {<<: *env, B: "2"}
    ports: ["80"]
  worker: {extends: {file: base.yaml, service: common}, command: work}
  debug: {image: d, profiles: [debug]}
`,
		"over.yaml":      "services:\n  web: {image: b, ports: !override ['81'], environment: {C: '3'}}\n  worker: {command: !reset null}\n",
		"base.yaml":      "services:\n  common: {image: c, volumes: ['./data:/data:ro']}\n",
		"sub/inner.yaml": "services:\n  inner: {image: i, volumes: ['./x:/x:ro']}\n",
	})
	p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml"), filepath.Join(dir, "over.yaml")}, Profiles: []string{"debug"}})
	if err != nil {
		t.Fatal(err)
	}
	web, worker, inner := p.as.Services["web"], p.as.Services["worker"], p.as.Services["inner"]
	if web.Image != "b" || len(web.Ports) != 1 || web.Ports[0].Target != 81 || len(web.Environment) != 3 {
		t.Errorf("web is %+v", web)
	}
	if worker.Image != "c" || worker.Command != nil || worker.Volumes[0].Source != filepath.Join(dir, "data") {
		t.Errorf("worker is %+v", worker)
	}
	if inner.Volumes[0].Source != filepath.Join(dir, "sub", "x") {
		t.Errorf("inner is %+v", inner)
	}
	if want := []string{"web", "worker", "debug", "inner"}; !reflect.DeepEqual(p.order, want) {
		t.Errorf("the order is %v", p.order)
	}
}

func TestProject_YAML_reload(t *testing.T) {
	p := loadGood(t, `
services:
  web:
    image: a
    command: ["echo", "$$HOME $${X}", "a\nb"]
    environment: {A: "${A}", B: "tab\t\u00fc"}
    healthcheck: {test: ["CMD-SHELL", "test $$X"], interval: 5s}
    deploy: {resources: {limits: {cpus: "0.5"}}}
    ports: ["8000:80"]
    ulimits: {nofile: {soft: 10, hard: 20}}
    tmpfs: ["/run:size=1m"]
    configs: [c]
    depends_on: {db: {condition: service_healthy}}
  db: {image: b, scale: 2, volumes: ["data:/d"], sysctls: {net.core.somaxconn: 10}}
configs: {c: {content: "$$x ${A}"}}
volumes: {data: {}}
`, fumehood.Compose{Env: map[string]string{"A": "a$b$$c"}, Egress: fumehood.EgressInternet})
	p.Apply(Policy{})
	first, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, string(first), fumehood.Compose{})
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	second, err := again.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("first:\n%s\nthen:\n%s", first, second)
	}
	if got := env(t, again, "web", "A"); got != "a$b$$c" {
		t.Errorf("A is %q", got)
	}
}

// Other services, also those of other sandboxes, would run what one service writes to the guest's volume.
func TestLoad_guestVolume(t *testing.T) {
	t.Parallel()
	for _, unsafe := range []bool{false, true} {
		_, err := load(t, "services: {a: {image: i, volumes: ['fumehood-guest:/x']}}\nvolumes: {fumehood-guest: {}}\n", fumehood.Compose{AllowUnsafe: unsafe})
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "compose.yaml:2: volumes.fumehood-guest: is the name of the guest's own volume") {
			t.Errorf("unsafe %v: got %v", unsafe, err)
		}
	}
}

// A value with a line break could add a line to a file that the Engine writes for the container, such as a name server.
func TestLoad_lineBreaks(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"dns_search": `["a\nnameserver 192.0.2.2"]`, "dns_opt": `["ndots:1\nnameserver 192.0.2.2"]`, "hostname": `"a\nb"`,
		"tmpfs": `["/x:size=1m,mode=0\n7"]`, "domainname": `"a\rb"`, "extra_hosts": `["a\nb:1.2.3.4"]`,
	} {
		_, err := load(t, "services: {a: {image: i, "+key+": "+value+"}}", fumehood.Compose{AllowUnsafe: true})
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), key+": ") || !strings.Contains(err.Error(), "control character") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

// Each mount has its own place in the container, and subpaths do not lead out of the mounted volume or image.
func TestLoad_targets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ service, says string }{
		"the root":               {"volumes: ['vol:/']", "volumes: wanted an absolute path"},
		"the root by ..":         {"volumes: [{type: volume, source: vol, target: /a/..}]", "volumes: wanted an absolute path"},
		"a relative one":         {"volumes: [{type: volume, source: vol, target: a}]", "volumes: wanted an absolute path"},
		"a volume of one letter": {"volumes: ['v:/c']", `"v:/c" is read as a path of a Windows drive`},
		"a tmpfs at the root":    {"tmpfs: ['/:size=1m']", "tmpfs: wanted an absolute path"},
		"a secret at the root":   {"secrets: [{source: s, target: /}]", "secrets: wanted an absolute path"},
		"the guest":              {"volumes: ['vol:/x/../.fumehood/guest']", "volumes: /.fumehood/guest is reserved"},
		"a subpath out":          {"volumes: [{type: volume, source: vol, target: /x, volume: {subpath: ../../..}}]", `the subpath "../../.." leads out`},
		"an absolute subpath":    {"volumes: [{type: volume, source: vol, target: /x, volume: {subpath: /etc}}]", `the subpath "/etc" leads out`},
		"a subpath of an image":  {"volumes: [{type: image, source: i, target: /x, image: {subpath: ../x}}]", `the subpath "../x" leads out`},
		"a tmpfs over a bind":    {"volumes: ['./x:/data:ro'], tmpfs: ['/data/:size=1m']", "tmpfs: something else is mounted at /data as well"},
		"a tmpfs over a secret":  {"secrets: [s], tmpfs: ['/run/secrets/s/']", "secrets: something else is mounted at /run/secrets/s as well"},
		"a config over a volume": {"volumes: ['vol:/x'], configs: [{source: s, target: /x/}]", "configs: something else is mounted at /x as well"},
		"a subpath":              {"volumes: [{type: volume, source: vol, target: /x, volume: {subpath: a/b}}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, "services: {a: {image: i, "+tt.service+"}}\nvolumes: {vol: {}}\nsecrets: {s: {file: ./x}}\nconfigs: {s: {file: ./x}}\n", fumehood.Compose{AllowUnsafe: true})
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
