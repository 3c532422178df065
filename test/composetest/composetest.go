// Package composetest reads the Compose files that tests of several providers start. Each one says in x-test what it does.
package composetest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
)

// Case is the content of x-test in a file.
type Case struct {
	file string // its path

	Does        string            // a sentence for docs/compose.md
	Files       []string          // additional files that override this one
	Profiles    []string          //
	Env         map[string]string //
	AllowUnsafe bool              `yaml:"allow_unsafe"`

	Services []string       // all started services, the default one first; not checked if empty
	Run      []command      // commands to run in the services
	Ports    map[string]int // by service: a published port at which it serves /hostname over HTTP
	Limits   bool           // the containers must have the limits of limits.yaml
	Fails    []string       // texts in the error of the start
	Refused  []string       // texts in the refusal
}

type command struct {
	Service        string // empty means the default one
	Command        string // for sh -c
	Want, Contains string // of its standard output, without the final newline
}

// Cases returns the cases of the files in a folder, by the file's path there.
func Cases(t *testing.T, root string) map[string]Case {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.yaml", filepath.Join("*", "compose.yaml")} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	cases := map[string]Case{}
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
		output, err := yaml.Marshal(&doc.Test)
		if err != nil {
			t.Fatal(err)
		}
		c := Case{file: file}
		dec := yaml.NewDecoder(bytes.NewReader(output))
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

// Spec returns the spec of a sandbox with the file.
func (c *Case) Spec() fumehood.Spec {
	src := fumehood.Compose{Files: []string{c.file}, Profiles: c.Profiles, Env: c.Env, AllowUnsafe: c.AllowUnsafe}
	for _, f := range c.Files {
		src.Files = append(src.Files, filepath.Join(filepath.Dir(c.file), f))
	}
	return fumehood.Spec{Compose: &src, Limits: fumehood.Limits{Memory: 128 << 20, PIDs: 200}}
}

// Check checks the services of a sandbox, and what their commands and ports say.
func (c *Case) Check(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	var names []string
	for _, s := range sb.Info().Services {
		names = append(names, s.Name)
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
