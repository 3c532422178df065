package docker_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

var updateComposeDocs = flag.Bool("update-compose-docs", false, "write the tables of docs/compose.md again")

// composeCase is the content of x-test in a file of testdata/compose.
type composeCase struct {
	Does        string            // a sentence for docs/compose.md
	Files       []string          // additional files that override this one
	Profiles    []string          //
	Env         map[string]string //
	AllowUnsafe bool              `yaml:"allow_unsafe"`

	Services []string       // all started services, the default one first; not checked if empty
	Run      []composeRun   // commands to run in the services
	Ports    map[string]int // by service: a published port at which it serves /hostname over HTTP
	Limits   bool           // the containers must have the limits of limits.yaml
	Fails    []string       // texts in the error of the start
	Refused  []string       // texts in the refusal
}

type composeRun struct {
	Service        string // empty means the default one
	Command        string // for sh -c
	Want, Contains string // of its standard output, without the final newline
}

// composeCases returns the cases by the file's path below testdata/compose.
func composeCases(t *testing.T) map[string]composeCase {
	t.Helper()
	root := filepath.Join("testdata", "compose")
	var files []string
	for _, pattern := range []string{"*.yaml", filepath.Join("*", "compose.yaml")} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	cases := map[string]composeCase{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Test yaml.Node `yaml:"x-test"`
		}
		if err := yaml.Unmarshal(content, &doc); err != nil {
			t.Fatal(err)
		}
		said, err := yaml.Marshal(&doc.Test)
		if err != nil {
			t.Fatal(err)
		}
		var c composeCase
		dec := yaml.NewDecoder(bytes.NewReader(said))
		dec.KnownFields(true)
		if err := dec.Decode(&c); err != nil || c.Does == "" {
			t.Fatalf("%s: x-test: %v", file, err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		cases[filepath.ToSlash(name)] = c
	}
	return cases
}

func (c *composeCase) spec(name string) fumehood.Spec {
	file := filepath.Join("testdata", "compose", filepath.FromSlash(name))
	src := fumehood.Compose{Files: []string{file}, Profiles: c.Profiles, Env: c.Env, AllowUnsafe: c.AllowUnsafe}
	for _, f := range c.Files {
		src.Files = append(src.Files, filepath.Join(filepath.Dir(file), f))
	}
	return fumehood.Spec{Compose: &src, Limits: fumehood.Limits{Memory: 128 << 20, PIDs: 200}}
}

func TestComposeFiles(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	cases := composeCases(t)
	behave := 0
	for name, c := range cases {
		if c.Refused == nil {
			behave++
		}
		t.Run(strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), "/compose"), func(t *testing.T) {
			t.Parallel()
			if c.Refused == nil && c.Fails == nil {
				c.check(t, start(t, p, c.spec(name)))
				return
			}
			sb, err := p.Start(t.Context(), c.spec(name))
			if err == nil {
				t.Fatal(errors.Join(errors.New("it was started"), sb.Close(t.Context())))
			}
			for _, want := range append(c.Refused, c.Fails...) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q missing in: %v", want, err)
				}
			}
			if c.Refused != nil && !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("no ErrConfig: %v", err)
			}
		})
	}
	if len(cases) < 40 || behave < 32 {
		t.Errorf("of %d files, %d behave as described", len(cases), behave)
	}
}

func (c *composeCase) check(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	var names []string
	for _, s := range sb.Info().Services {
		names = append(names, s.Name)
		if c.Limits {
			checkLimits(t, s)
		}
	}
	if c.Services != nil {
		slices.Sort(names[1:])
		if slices.Sort(c.Services[1:]); !slices.Equal(names, c.Services) {
			t.Errorf("started services: %v, want %v", names, c.Services)
		}
	}
	for _, r := range c.Run {
		var svc fumehood.Service = sb
		if r.Service != "" {
			var err error
			if svc, err = sb.Lookup(r.Service); err != nil {
				t.Fatal(err)
			}
		}
		res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", r.Command}, Timeout: time.Minute})
		if err != nil {
			t.Errorf("%s: %s: %v", r.Service, r.Command, err)
			continue
		}
		got := strings.TrimRight(res.Stdout.Text(), "\n ")
		if r.Contains == "" && got != strings.TrimRight(r.Want, "\n ") || !strings.Contains(got, r.Contains) {
			t.Errorf("%s: %s: got %q, want %q %q; %s", r.Service, r.Command, got, r.Want, r.Contains, res.Stderr.Text())
		}
	}
	for service, port := range c.Ports {
		checkPort(t, sb, service, port)
	}
}

// checkPort fetches a page from a published port.
func checkPort(t *testing.T, sb fumehood.Sandbox, service string, port int) {
	t.Helper()
	svc, err := sb.Lookup(service)
	if err != nil {
		t.Fatal(err)
	}
	c, err := svc.Connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range c.Ports {
		if p.Container != port {
			continue
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(p.Address, fmt.Sprint(p.Host)), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if p.Host == 8008 || p.Host == 8009 || p.Address != "127.0.0.1" {
			t.Errorf("it is published at %s:%d", p.Address, p.Host)
		}
		fmt.Fprint(conn, "GET /hostname HTTP/1.0\r\n\r\n")
		var answer bytes.Buffer
		if _, err := answer.ReadFrom(conn); err != nil || !strings.Contains(answer.String(), "200 OK") {
			t.Errorf("%v: %s", err, answer.String())
		}
		found = true
	}
	if !found {
		t.Errorf("port %d of %s is not among %v", port, service, c.Ports)
	}
}

// checkLimits compares a container's limits of memory, swap, processes and CPUs, as the Engine reports them.
func checkLimits(t *testing.T, s fumehood.ServiceInfo) {
	t.Helper()
	want := "67108864 67108864 100 500000000"
	if s.Name == "none" {
		want = "134217728 134217728 200 0"
	}
	raw := tier.Program(t, tier.CI, "docker")
	const format = "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} {{.HostConfig.NanoCpus}}"
	out, err := exec.CommandContext(t.Context(), raw, "inspect", "-f", format, s.Container).Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		t.Errorf("the limits of %s are %s, want %s: %v", s.Name, got, want, err)
	}
}

// TestComposeDocs checks that the tables of docs/compose.md are up to date.
func TestComposeDocs(t *testing.T) {
	var behave, refused strings.Builder
	behave.WriteString("| file | what it shows |\n|---|---|\n")
	refused.WriteString("| file | what is refused |\n|---|---|\n")
	cases := composeCases(t)
	var names []string
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		table := &behave
		if cases[name].Refused != nil {
			table = &refused
		}
		fmt.Fprintf(table, "| `%s` | %s |\n", name, cases[name].Does)
	}
	page := filepath.Join("..", "..", "docs", "compose.md")
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for mark, table := range map[string]string{"behave": behave.String(), "refused": refused.String()} {
		begin, end := "<!-- "+mark+": written by a test -->\n", "<!-- end of "+mark+" -->"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no table %s", page, mark)
		}
		text = head + begin + table + end + tail
	}
	if text == string(content) {
		return
	}
	if !*updateComposeDocs {
		t.Fatalf("%s is not up to date: go test ./provider/docker -run TestComposeDocs -update-compose-docs", page)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil { //nolint:gosec // a page of the documentation
		t.Fatal(err)
	}
}
