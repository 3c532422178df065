//go:build linux && (amd64 || arm64)

package native_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/journal"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
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

func lifeName() string { return "life-" + strings.ToLower(rand.Text()[:8]) }

// Golden files have the journal of the main lives of a sandbox.
func TestLives(t *testing.T) {
	t.Parallel()
	for life, c := range map[string]struct {
		run  func(*testing.T, fumehood.Provider, *lifetest.Record, fumehood.Spec)
		spec fumehood.Spec
	}{
		"run":     {lifetest.Run, fumehood.Spec{Image: busybox}},
		"kept":    {lifetest.CloseKept, fumehood.Spec{Image: busybox}},
		"project": {lifetest.Project, fumehood.Spec{Compose: composeFile(t, dependent)}},
		"failed":  {lifetest.FailStart, fumehood.Spec{Compose: composeFile(t, broken)}},
	} {
		t.Run(life, func(t *testing.T) {
			t.Parallel()
			c.spec.Name = lifeName()
			pairs := []string{c.spec.Name, "NAME"}
			if c.spec.Compose != nil {
				pairs = append(pairs, c.spec.Compose.Files[0], "FILE")
			}
			r := lifetest.New(pairs...)
			c.run(t, newProvider(t, native.Options{}), r, c.spec)
			r.Check(t, life)
		})
	}
}

// journaled is the phase of an owner that is killed while a command runs. Its sandbox has the name of the prefix, and its
// journal is the file of that name.
const journaled = "journaled"

func (k *killed) journaled(now func()) {
	name := os.Getenv(prefixVar)
	file, err := os.Create(filepath.Join(os.Getenv(dirVar), name))
	k.check(err)
	sb, err := k.p.Start(k.ctx, fumehood.Spec{Image: busybox, Name: name, Journal: journal.New(file, nil).Logger})
	k.check(err)
	for _, err := range sb.Stream(k.ctx, fumehood.Cmd{Args: []string{"sh", "-c", "echo begun; exec sleep 1000"}}) {
		k.check(err)
		now()
	}
}

// The journal of an owner that is killed.
func TestLives_killed(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), lifeName()
	newProvider(t, native.Options{StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache")})
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), phaseVar+"="+journaled, dirVar+"="+dir, prefixVar+"="+name)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(stdout); !lines.Scan() || lines.Text() != "now" {
		t.Fatalf("the owner says %q: %v", lines.Text(), lines.Err())
	}
	reapers := conformance.Reapers(cmd.Process.Pid)
	_ = cmd.Process.Kill() // and wait
	_ = cmd.Wait()
	for _, pid := range reapers {
		conformance.Eventually(t, "the reaper ends", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	r := lifetest.New(name, "NAME")
	for line := range bytes.Lines(text) {
		if _, err := r.Write(line); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	r.Check(t, "killed")
}
