package task_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/local"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/filetest"
	"github.com/fumehood/fumehood/test/tier"
)

// inDocker connects a provider and returns a unique task name. objects lists that task's existing containers.
func inDocker(t *testing.T, opts docker.Options) (p *docker.Provider, name string, objects func() []engine.Object) {
	t.Helper()
	p = dockertest.Provider(t, opts)
	e := dockertest.Engine(t)
	name = "task-" + strings.ToLower(rand.Text()[:8])
	ctx := context.WithoutCancel(t.Context())
	objects = func() []engine.Object {
		t.Helper()
		all, err := e.Objects(ctx, owner.LabelUser+task.LabelTask+"="+name)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	t.Cleanup(func() {
		for _, o := range objects() {
			t.Errorf("left behind: %s %s", o.Kind, o.Name)
			if err := e.Remove(ctx, o); err != nil {
				t.Error(err)
			}
		}
	})
	return p, name, objects
}

const twoServices = `
services:
  web:
    image: fumehood-test/busybox
    command: sleep infinity
    environment: {KIND: "${SAMPLE_METADATA_KIND}"}
  default:
    image: fumehood-test/busybox
    command: sleep infinity
    working_dir: /work
`

func TestDocker_sandboxes(t *testing.T) {
	t.Parallel()
	p, name, objects := inDocker(t, docker.Options{NoSweep: true})
	dir := filetest.Lay(t, map[string]string{"compose.yaml": twoServices, "host.txt": "of the host"})
	file := filepath.Join(dir, "compose.yaml")
	opts := task.Options{Name: name, Provider: p, Spec: fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}}}}
	for _, id := range tier.Pick(t, []string{"one", "two"}, []string{"one", "two", "three"}, []string{"one", "two", "three"}) {
		opts.Samples = append(opts.Samples, task.Sample{
			ID: id, Metadata: map[string]string{"kind": "kind of " + id},
			Files: map[string]task.Content{
				"in/text": {Text: "text of " + id}, "/etc/host.txt": {Path: filepath.Join(dir, "host.txt")},
				"web:data": {Data: "data:;base64,AP8="}, "web:/srv/text": {Text: "web's " + id},
			},
			Setup: task.Content{Text: "cat in/text >set-up; echo $$ >>set-up"},
		})
	}
	tk := initTask(t, opts)
	var mu sync.Mutex
	started := map[task.Key]fumehood.Sandbox{}
	var wg sync.WaitGroup
	for _, s := range opts.Samples {
		for _, epoch := range []int{1, 2} {
			wg.Go(func() {
				sb, err := tk.Start(t.Context(), s.ID, epoch)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				started[task.KeyOf(sb.Info())] = sb
			})
		}
	}
	wg.Wait()
	if len(started) != 2*len(opts.Samples) {
		t.Fatalf("got %d sandboxes", len(started))
	}
	for key, sb := range started {
		info := sb.Info()
		if info.Labels[task.LabelTask] != name || !strings.HasPrefix(info.Name, "fumehood-"+name+"-") || info.ConfigFile != file ||
			!slices.Equal(info.EnvNames, []string{"SAMPLE_METADATA_KIND"}) || len(info.Services) != 2 || info.Services[0].Name != "default" {
			t.Errorf("got %+v", info)
		}
		web, err := sb.Lookup("web")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []struct {
			svc        fumehood.Service
			path, want string
		}{
			{sb, "/work/in/text", "text of " + key.Sample},
			{sb, "/etc/host.txt", "of the host"},
			{web, "/data", "\x00\xff"},
			{web, "/srv/text", "web's " + key.Sample},
		} {
			if got, err := f.svc.ReadFile(t.Context(), f.path, fumehood.ReadOptions{}); err != nil || string(got) != f.want {
				t.Errorf("%+v: %s: %q, %v", key, f.path, got, err)
			}
		}
		if got, err := sb.ReadFile(t.Context(), "set-up", fumehood.ReadOptions{}); err != nil || !strings.HasPrefix(string(got), "text of "+key.Sample) || strings.Count(string(got), "\n") != 1 {
			t.Errorf("%+v: the setup created %q, %v", key, got, err)
		}
		res, err := web.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo $KIND"}})
		if err != nil || res.Stdout.Text() != "kind of "+key.Sample+"\n" {
			t.Errorf("%+v: %v, %v", key, res, err)
		}
	}
	containers := 0
	for _, o := range objects() {
		if o.Kind != engine.Container {
			continue
		}
		containers++
		sb := started[task.Key{Sample: o.Labels[owner.LabelUser+task.LabelSample], Epoch: int(o.Labels[owner.LabelUser+task.LabelEpoch][0] - '0')}]
		if sb == nil || o.Labels[owner.LabelSandbox] != sb.Info().Name || o.Labels[owner.LabelConfig] != file ||
			o.Labels[owner.LabelEnv] != "SAMPLE_METADATA_KIND" || (o.Labels[owner.LabelDefault] == "true") != strings.Contains(o.Name, "-default-") {
			t.Errorf("%s: %q", o.Name, o.Labels)
		}
	}
	if containers != 2*len(started) {
		t.Errorf("%d containers", containers)
	}
	if err := tk.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := objects(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// An image that depends on a sample's metadata is built once for each distinct value. It remains, because it is
// found by its content.
func TestDocker_imageBuilds(t *testing.T) {
	t.Parallel()
	e := dockertest.Engine(t)
	var mu sync.Mutex
	var steps []string
	p, name, _ := inDocker(t, docker.Options{Progress: func(ev provider.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if ev.Build && strings.Contains(ev.Status, "echo built") {
			steps = append(steps, ev.Status)
		}
	}})
	ctx := context.WithoutCancel(t.Context())
	built := func() []engine.Object {
		images, err := e.Objects(ctx, "fumehood-test="+name, engine.ImageKind)
		if err != nil {
			t.Fatal(err)
		}
		return images
	}
	t.Cleanup(func() {
		for _, image := range built() {
			if err := e.Remove(ctx, image); err != nil {
				t.Error(err)
			}
		}
	})
	dir := filetest.Lay(t, map[string]string{"compose.yaml": `
services:
  default:
    build:
      dockerfile_inline: |
        FROM fumehood-test/busybox
        ARG KIND
        RUN echo built $$KIND >/kind
      args: {KIND: "${SAMPLE_METADATA_KIND}"}
      labels: {fumehood-test: ` + name + `}
    command: sleep infinity
    environment: {QUESTION: "${SAMPLE_METADATA_QUESTION}"}
`})
	opts := task.Options{Name: name, Provider: p, Spec: fumehood.Spec{Compose: &fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}}}
	for i := range 6 {
		opts.Samples = append(opts.Samples, task.Sample{ID: fmt.Sprint(i), Metadata: map[string]string{"kind": name + string("ab"[i%2]), "question": fmt.Sprint(i)}})
	}
	tk := initTask(t, opts)
	if len(steps) != 2 || len(built()) != 2 {
		t.Fatalf("after Init: built %q: %v", steps, built())
	}
	for _, id := range []string{"0", "3", "4"} {
		sb, err := tk.Start(t.Context(), id, 1)
		if err != nil {
			t.Fatal(err)
		}
		kind := opts.Samples[id[0]-'0'].Metadata["kind"]
		if got, err := sb.ReadFile(t.Context(), "/kind", fumehood.ReadOptions{}); err != nil || string(got) != "built "+kind+"\n" {
			t.Errorf("sample %s: %q, %v", id, got, err)
		}
	}
	if err := tk.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(steps) != 2 || len(built()) != 2 {
		t.Errorf("after Close: built %q: %v", steps, built())
	}
	opts.Samples[5].Metadata["kind"] = name + "c"
	if _, err := task.Init(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if len(steps) != 3 || len(built()) != 3 {
		t.Errorf("after another: built %q: %v", steps, built())
	}
}

func TestDocker_setupFails(t *testing.T) {
	t.Parallel()
	p, name, objects := inDocker(t, docker.Options{NoSweep: true})
	opts := task.Options{
		Name: name, Provider: p, Spec: fumehood.Spec{Image: "fumehood-test/busybox", User: "1000:1000", Network: fumehood.Network{Mode: "none"}},
		Samples: []task.Sample{
			{ID: "fails", Setup: task.Content{Text: "#!/bin/sh -e\nid -u\necho no >&2\nfalse\necho unreached\n"}},
			{ID: "hangs", Setup: task.Content{Text: "echo begun; sleep 1000"}},
			{ID: "works", Setup: task.Content{Text: "id -u >/tmp/who"}},
		},
	}
	tk := initTask(t, opts)
	opts.SetupTimeout = 3 * time.Second
	hasty := initTask(t, opts)
	_, err := tk.Start(t.Context(), "fails", 1)
	var script *task.SetupError
	if !errors.Is(err, fumehood.ErrConfig) || !errors.As(err, &script) || script.Result.ExitCode != 1 || script.Result.Stdout.Text() != "1000\n" || !strings.Contains(err.Error(), "    no") {
		t.Errorf("got %v", err)
	}
	_, err = hasty.Start(t.Context(), "hangs", 1)
	if !errors.Is(err, fumehood.ErrLimit) || !errors.As(err, &script) || script.Result.Outcome != fumehood.TimedOut || !strings.Contains(err.Error(), "within the limit of 3s") || !strings.Contains(err.Error(), "begun") {
		t.Errorf("got %v", err)
	}
	if left := objects(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	sb, err := tk.Start(t.Context(), "works", 1)
	if err != nil {
		t.Fatal(err)
	}
	list, err := sb.List(t.Context(), "/tmp")
	if err != nil || len(list) != 1 || list[0].Name != "who" {
		t.Errorf("%+v, %v", list, err)
	}
}

// The Engine transport cannot remove files, so a command must remove the script.
func TestDocker_setupViaEngine(t *testing.T) {
	t.Parallel()
	p, name, _ := inDocker(t, docker.Options{Transport: docker.TransportEngine, NoSweep: true})
	tk := initTask(t, task.Options{
		Name: name, Provider: p, Spec: fumehood.Spec{Image: "fumehood-test/busybox"}, Samples: []task.Sample{{ID: "a", Setup: task.Content{Text: "ls -a /tmp >/seen"}}},
	})
	sb, err := tk.Start(t.Context(), "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	if seen, err := sb.ReadFile(t.Context(), "/seen", fumehood.ReadOptions{}); err != nil || !strings.Contains(string(seen), "fumehood-setup-") {
		t.Errorf("%q, %v", seen, err)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"ls", "/tmp"}})
	if err != nil || strings.Contains(res.Stdout.Text(), "fumehood-setup") {
		t.Errorf("%v, %v", res, err)
	}
}

func TestDocker_closeInterrupted(t *testing.T) {
	t.Parallel()
	p, name, objects := inDocker(t, docker.Options{NoSweep: true})
	var mu sync.Mutex
	var shown []string
	begun := make(chan struct{})
	tk := initTask(t, task.Options{
		Name: name, Provider: p, Spec: fumehood.Spec{Image: "fumehood-test/busybox"},
		Samples: []task.Sample{{ID: "a"}, {ID: "slow", Setup: task.Content{Text: "exec sleep 1000"}}},
		Journal: func(string) (io.WriteCloser, error) { return &watched{began: begun}, nil },
		Removed: func(r task.Removal) {
			mu.Lock()
			defer mu.Unlock()
			shown = append(shown, fmt.Sprintf("%s %d %v", task.KeyOf(r.Sandbox).Sample, task.KeyOf(r.Sandbox).Epoch, r.Err))
		},
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	for _, epoch := range []int{1, 2} {
		if _, err := tk.Start(ctx, "a", epoch); err != nil {
			t.Fatal(err)
		}
	}
	failed := make(chan error, 1)
	go func() {
		_, err := tk.Start(ctx, "slow", 1)
		failed <- err
	}()
	<-begun
	interrupt()
	if err := tk.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, fumehood.ErrCanceled) {
		t.Errorf("got %v", err)
	}
	slices.Sort(shown)
	if !slices.Equal(shown, []string{"a 1 <nil>", "a 2 <nil>", "slow 1 <nil>"}) {
		t.Errorf("shown: %q", shown)
	}
	if left := objects(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDocker_kept(t *testing.T) {
	t.Parallel()
	p, name, objects := inDocker(t, docker.Options{NoSweep: true})
	file := filepath.Join(filetest.Lay(t, map[string]string{"compose.yaml": twoServices}), "compose.yaml")
	var kept []task.Kept
	tk := initTask(t, task.Options{
		Name: name, Provider: p, Keep: true, Kept: func(all []task.Kept) { kept = all }, Spec: fumehood.Spec{Compose: &fumehood.Compose{Files: []string{file}, Env: map[string]string{"SAMPLE_METADATA_KIND": "x"}}},
		Samples: []task.Sample{{ID: "works"}, {ID: "fails", Spec: &fumehood.Spec{Image: "fumehood-test/busybox"}, Setup: task.Content{Text: "exit 3"}}},
	})
	sb, err := tk.Start(t.Context(), "works", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tk.Start(t.Context(), "fails", 2); err == nil {
		t.Error("the setup did not fail")
	}
	if err := tk.End(t.Context(), sb); err != nil {
		t.Error(err)
	}
	if err := tk.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(kept) != 2 || len(kept[0].Services) != 2 || len(kept[1].Services) != 1 {
		t.Fatalf("got %+v", kept)
	}
	var table strings.Builder
	if err := task.WriteKept(&table, kept); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	var names []string
	for _, k := range kept {
		for _, s := range k.Services {
			row := "docker exec -it " + s.Container + " sh -l"
			if !slices.ContainsFunc(objects(), func(o engine.Object) bool { return o.Name == s.Container && o.State == "running" }) || !strings.Contains(table.String(), row) {
				t.Errorf("%s does not run, or the table lacks %q:\n%s", s.Container, row, &table)
			}
		}
		if !strings.Contains(table.String(), "fumehood cleanup "+k.Sandbox.Name+"\n") {
			t.Errorf("the table does not say how to remove %s:\n%s", k.Sandbox.Name, &table)
		}
		names = append(names, k.Sandbox.Name)
	}
	found, err := p.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(found, func(k provider.KeptSandbox) bool { return k.Name == names[0] }); i < 0 ||
		!maps.Equal(found[i].Labels, map[string]string{task.LabelTask: name, task.LabelSample: "works", task.LabelEpoch: "1"}) || found[i].ConfigFile != file || !slices.Equal(found[i].EnvNames, []string{"SAMPLE_METADATA_KIND"}) {
		t.Errorf("got %+v", found)
	}
	again, err := p.Open(t.Context(), names[0])
	if err != nil {
		t.Fatal(err)
	}
	if info := again.Info(); task.KeyOf(info).Sample != "works" || info.ConfigFile != file {
		t.Errorf("got %+v", info)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Cleanup(t.Context(), provider.CleanupOptions{Names: names}); err != nil {
		t.Error(err)
	}
}

func TestTask_local(t *testing.T) {
	t.Parallel()
	p, err := local.New(local.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	tk := initTask(t, task.Options{Provider: p, Samples: []task.Sample{
		{ID: "a", Files: map[string]task.Content{"in": {Text: "x"}}, Setup: task.Content{Text: "#!/bin/sh\npwd; cp in out; echo $0 >script"}},
		{ID: "fails", Setup: task.Content{Text: "exit 4"}},
	}})
	sb, err := tk.Start(t.Context(), "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := sb.ReadFile(t.Context(), "out", fumehood.ReadOptions{}); err != nil || string(out) != "x" {
		t.Errorf("%q, %v", out, err)
	}
	script, err := sb.ReadFile(t.Context(), "script", fumehood.ReadOptions{})
	if err != nil || !strings.HasPrefix(string(script), sb.ServiceInfo().Dir) {
		t.Errorf("the script ran as %q, %v", script, err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(script))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	var failed *task.SetupError
	if _, err := tk.Start(t.Context(), "fails", 1); !errors.As(err, &failed) || failed.Result.ExitCode != 4 {
		t.Errorf("got %v", err)
	}
}

func TestDocker_runAhead(t *testing.T) {
	t.Parallel()
	p, name, objects := inDocker(t, docker.Options{NoSweep: true})
	j := &journals{}
	dir := filetest.Lay(t, map[string]string{"compose.yaml": twoServices})
	opts := task.Options{
		Name: name, Provider: p, Journal: j.journal, Spec: fumehood.Spec{Image: "fumehood-test/busybox", Limits: fumehood.Limits{Memory: 64 << 20}},
	}
	for i := range 9 {
		s := task.Sample{ID: fmt.Sprint(i), Files: map[string]task.Content{"/tmp/in": {Text: fmt.Sprint(i)}}}
		if i%3 == 2 { // two kinds of projects, with different environments
			s.Spec = &fumehood.Spec{Compose: &fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}}
			s.Metadata = map[string]string{"kind": fmt.Sprint(i % 2)}
		}
		opts.Samples = append(opts.Samples, s)
	}
	var mu sync.Mutex
	ahead := 0
	all, err := collect(t.Context(), opts, task.RunOptions{MaxSandboxes: 4, Ahead: 2, Solve: func(ctx context.Context, a *task.Attempt) error {
		for _, o := range objects() {
			if o.Labels[owner.LabelSandbox] == a.Sandbox.Info().Name && o.Kind == engine.Container && o.Labels[owner.LabelUser+task.LabelSample] == "" {
				mu.Lock()
				ahead++
				mu.Unlock()
				break
			}
		}
		return command("sh", "-c", "touch /tmp/used && cat /tmp/in && test $(ls /tmp | wc -l) = 2")(ctx, a)
	}})
	if err != nil || len(all) != 9 || len(j.lines) != 9 || j.open != 0 {
		t.Fatalf("%q, %d journals, %d open, %v", keys(all), len(j.lines), j.open, err)
	}
	for _, r := range all {
		if !passed(r) || r.Steps[0].Stdout.Text() != r.Sample {
			t.Errorf("got %+v: %+v", r, r.Error)
		}
		if lines := j.lines[r.Sandbox].String(); !strings.Contains(lines, `"kind":"network"`) || !strings.Contains(lines, fmt.Sprintf(`"sample":%q`, r.Sample)) {
			t.Errorf("the journal of %s: %s", r.Sample, lines)
		}
		t.Logf("%s: acquired in %.1f ms", r.Sample, 1000*r.Phases["acquire"])
	}
	if ahead == 0 {
		t.Error("no sandbox was started ahead")
	}
	if left := objects(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDocker_runInterrupted(t *testing.T) {
	t.Parallel()
	p, name, objects := inDocker(t, docker.Options{NoSweep: true})
	opts := task.Options{Name: name, Provider: p, Spec: fumehood.Spec{Image: "fumehood-test/busybox"}}
	for i := range 20 {
		opts.Samples = append(opts.Samples, task.Sample{ID: fmt.Sprint(i)})
	}
	ctx, interrupt := context.WithCancel(t.Context())
	all, err := collect(ctx, opts, task.RunOptions{MaxSandboxes: 4, Ahead: 2, Solve: func(ctx context.Context, a *task.Attempt) error {
		interrupt()
		return command("sleep", "1000")(ctx, a)
	}})
	if !errors.Is(err, fumehood.ErrCanceled) {
		t.Errorf("got %v", err)
	}
	for _, r := range all {
		if r.Error == nil || r.Error.Class != task.Canceled {
			t.Errorf("got %+v", r)
		}
	}
	if left := objects(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRun_local(t *testing.T) {
	t.Parallel()
	p, err := local.New(local.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	opts := task.Options{Name: "sums", Provider: p}
	for i := range 12 {
		opts.Samples = append(opts.Samples, task.Sample{ID: fmt.Sprint(i), Files: map[string]task.Content{"in": {Text: fmt.Sprint(i)}}})
	}
	all, err := collect(t.Context(), opts, task.RunOptions{Epochs: 2, MaxSandboxes: 6, Ahead: 3, Solve: command("sh", "-c", "ls; cat in; exit $(($(cat in) % 2))")})
	if err != nil || len(all) != 24 {
		t.Fatalf("%q, %v", keys(all), err)
	}
	for _, r := range all {
		n, _ := strconv.Atoi(r.Sample)
		if r.Error != nil || passed(r) != (n%2 == 0) || r.Steps[0].Stdout.Text() != "in\n"+r.Sample {
			t.Errorf("got %+v, %+v", r, r.Error)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
