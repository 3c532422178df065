package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/journal"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/lifetest"
)

// dependent is a project of two services, the default one of which starts when the other has started.
const dependent = `
services:
  default: {image: ` + busybox + `, command: sleep infinity, depends_on: [db]}
  db: {image: ` + busybox + `, command: sleep infinity}
`

// broken is the same project with a service whose program fails.
const broken = `
services:
  default: {image: ` + busybox + `, command: sleep infinity, depends_on: {db: {condition: service_healthy}}}
  db: {image: ` + busybox + `, command: [sh, -c, "echo last words; exit 3"], healthcheck: {test: "true", interval: 1h}}
`

// recorded is the version of the Engine that the golden files are of. Others need other calls.
const recorded = "20.10."

// recording returns a proxy whose calls are recorded, the record, and the name of the sandbox in it.
func recording(t *testing.T, pairs ...string) (proxy *faultproxy.Proxy, r *lifetest.Record, name string) {
	t.Helper()
	if server, err := engineOf(t).Server(t.Context()); err != nil || !strings.HasPrefix(server.Version, recorded) {
		t.Skipf("the golden files are of Engine %s, this is %q (%v)", recorded, server.Version, err)
	}
	name = "life-" + strings.ToLower(rand.Text()[:8])
	r = lifetest.New(append(pairs, name, "NAME")...)
	proxy = faultproxy.Start(t, socketOf(t))
	proxy.Decide(func(call string) faultproxy.Fault {
		r.Call(call)
		return faultproxy.None
	})
	return proxy, r, name
}

// Golden files have the Engine's calls and the journal of the main lives of a sandbox.
func TestLives(t *testing.T) {
	t.Parallel()
	warm(t) // then the start creates only the sandbox's own objects
	for life, c := range map[string]struct {
		run  func(*testing.T, fumehood.Provider, *lifetest.Record, fumehood.Spec)
		spec fumehood.Spec
	}{
		"run":     {lifetest.Run, fumehood.Spec{Image: busybox}},
		"kept":    {lifetest.CloseKept, fumehood.Spec{Image: busybox}},
		"project": {lifetest.Project, fumehood.Spec{Compose: project(t, dependent)}},
		"failed":  {lifetest.FailStart, fumehood.Spec{Compose: project(t, broken)}},
	} {
		t.Run(life, func(t *testing.T) {
			t.Parallel()
			state, pairs := t.TempDir(), []string{}
			if c.spec.Compose != nil {
				pairs = append(pairs, c.spec.Compose.Files[0], "FILE")
			}
			proxy, r, name := recording(t, pairs...)
			r.Step("connect")
			p := newProvider(t, docker.Options{Host: proxy.Host, StateDir: state})
			p.OnlySandboxes(name)
			c.spec.Name = name
			c.run(t, p, r, c.spec)
			r.Check(t, life)
		})
	}
}

// journaled is the phase of an owner that is killed while a command runs. arg is the file of its sandbox's journal.
var journaled = phase{name: "journaled", do: func(ctx context.Context, p *docker.Provider, arg string, now func()) error {
	file, err := os.Create(arg)
	if err != nil {
		return err
	}
	sb, err := p.Start(ctx, fumehood.Spec{Image: busybox, Name: filepath.Base(arg), Journal: journal.New(file, nil).Logger})
	if err != nil {
		return err
	}
	for _, err := range sb.Stream(ctx, fumehood.Cmd{Args: []string{"sh", "-c", "echo begun; exec sleep 1000"}}) {
		if err != nil {
			return err
		}
		now()
	}
	return file.Close()
}}

// The calls of an owner that is killed, and then of its reaper.
func TestLives_killed(t *testing.T) {
	t.Parallel()
	warm(t)
	proxy, r, name := recording(t)
	socket, _ := faultproxy.Socket(proxy.Host)
	file := filepath.Join(t.TempDir(), name)
	r.Step("owner")
	v := startVictim(t, journaled.name, file, socket, 0)
	if _, err := v.stdin.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	v.says(t, "now")
	pids := conformance.Reapers(v.cmd.Process.Pid)
	if len(pids) != 1 {
		t.Fatalf("reapers %v, want one", pids)
	}
	r.BeginShared("reaper")
	v.kill()
	conformance.Eventually(t, "the reaper has ended", func() bool { return conformance.HasEnded(pids[0]) })
	if left := leftOf(t, engineOf(t), v.id); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	r.Step("journal")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if _, err := r.Write(line); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	r.Check(t, "killed")
}
