package task_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/fake"
)

// prepared is a provider in memory whose sandboxes need one image for each value of "kind".
type prepared struct {
	fumehood.Provider
	fail map[string]error // by what is needed
	wait func(ctx context.Context) error

	mu       sync.Mutex
	got      []string
	excluded []string // what is needed, with what is excluded from it
	started  []string // images of started sandboxes
}

func newFake() *prepared {
	return &prepared{Provider: fake.New(fake.Options{Programs: map[string]fake.Program{"sh": shell, "fails": func(_ context.Context, p *fake.Proc) int {
		fmt.Fprintln(p.Stdout, "half done")
		fmt.Fprintln(p.Stderr, "no such package")
		return 3
	}, "hangs": func(ctx context.Context, p *fake.Proc) int {
		fmt.Fprintln(p.Stdout, "begun")
		<-ctx.Done()
		return 0
	}}})}
}

// shell runs scripts whose only line names another program.
func shell(_ context.Context, p *fake.Proc) int {
	data, err := p.ReadFile(p.Args[1])
	if err != nil {
		return 127
	}
	if err := p.WriteFile("ran", data); err != nil {
		return 1
	}
	return 0
}

func needs(spec fumehood.Spec) string {
	if spec.Compose == nil {
		return spec.Image
	}
	return spec.Compose.Env["SAMPLE_METADATA_KIND"]
}

func (p *prepared) ImageKey(_ context.Context, spec fumehood.Spec) (string, error) {
	if needs(spec) == "wrong" {
		return "", &fumehood.Error{Op: "load", Class: fumehood.ErrConfig, Err: errors.New("line 3 is wrong")}
	}
	return needs(spec), nil
}

func (p *prepared) Prepare(ctx context.Context, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	if p.wait != nil {
		return nil, p.wait(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, needs(spec))
	if len(opts.Exclude) > 0 {
		p.excluded = append(p.excluded, needs(spec)+" "+strings.Join(opts.Exclude, " "))
	}
	return map[string]string{"default": "id of " + needs(spec)}, p.fail[needs(spec)]
}

func (p *prepared) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	p.mu.Lock()
	p.started = append(p.started, spec.Images["default"])
	p.mu.Unlock()
	spec.Compose = nil // the fake does not support it
	return p.Provider.Start(ctx, spec)
}

// logged records the logger of the last start.
type logged struct {
	fumehood.Provider
	logger *slog.Logger
}

func (p *logged) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	p.logger = spec.Logger
	return p.Provider.Start(ctx, spec)
}

func TestTask_Start(t *testing.T) {
	t.Run("logger", func(t *testing.T) {
		p, logger := &logged{Provider: newFake()}, slog.New(slog.DiscardHandler)
		for _, want := range []*slog.Logger{logger, nil} {
			tk := initTask(t, task.Options{Provider: p, Logger: want, Samples: []task.Sample{{ID: "a"}}})
			if _, err := tk.Start(t.Context(), "a", 1); err != nil || p.logger != want {
				t.Errorf("got %v, %v", p.logger, err)
			}
		}
	})
}

func initTask(t *testing.T, opts task.Options) *task.Task {
	t.Helper()
	opts.Name = cmp.Or(opts.Name, "sums")
	if opts.Provider == nil {
		opts.Provider = newFake()
	}
	tk, err := task.Init(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := errors.Join(tk.Close(ctx), opts.Provider.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return tk
}

func TestInit_preparesOnce(t *testing.T) {
	p := newFake()
	var samples []task.Sample
	for i := range 100 {
		samples = append(samples, task.Sample{ID: fmt.Sprint(i), Metadata: map[string]string{"kind": fmt.Sprint(i % 3), "question": fmt.Sprint(i)}})
	}
	samples[50].Spec = &fumehood.Spec{Image: "other"}
	initTask(t, task.Options{Provider: p, Samples: samples, Spec: fumehood.Spec{Compose: &fumehood.Compose{Dockerfile: "x"}}})
	slices.Sort(p.got)
	if !slices.Equal(p.got, []string{"0", "1", "2", "other"}) {
		t.Errorf("got %q", p.got)
	}
}

// Sandboxes run the prepared images, including second sandboxes, even if the names refer to other images meanwhile.
func TestRun_preparedImages(t *testing.T) {
	p := newFake()
	samples := []task.Sample{{ID: "a", Others: []fumehood.Spec{{Image: "grader"}}}, {ID: "b", Spec: &fumehood.Spec{Image: "other"}}}
	opts := task.Options{Name: "t", Provider: p, Samples: samples, Spec: fumehood.Spec{Image: "mine"}, Exclude: func(samples []string) []string { return samples }}
	solve := func(ctx context.Context, a *task.Attempt) error {
		if a.Sample.ID != "a" {
			return nil
		}
		return errors.Join(
			a.Beside(ctx, fumehood.Spec{Image: "grader"}, func(context.Context, fumehood.Sandbox) error { return nil }),
			a.Beside(ctx, fumehood.Spec{Image: "unforeseen"}, func(context.Context, fumehood.Sandbox) error { return nil }))
	}
	passed := func(context.Context, *task.Attempt) (task.Score, error) { return task.Score{Value: 1}, nil }
	for res, err := range task.Run(t.Context(), opts, task.RunOptions{Solve: solve, Score: passed}) {
		if err != nil || res.Error != nil {
			t.Errorf("%+v, %v", res.Error, err)
		}
	}
	slices.Sort(p.started)
	if want := []string{"", "id of grader", "id of mine", "id of other"}; !slices.Equal(p.started, want) {
		t.Errorf("got %q, want %q", p.started, want)
	}
	slices.Sort(p.excluded)
	if want := []string{"grader a", "mine a", "other b"}; !slices.Equal(p.excluded, want) {
		t.Errorf("got %q, want %q", p.excluded, want)
	}
}

func TestInit_prepareFails(t *testing.T) {
	p := newFake()
	p.fail = map[string]error{"b": &fumehood.Error{Op: "pull", Class: fumehood.ErrUnavailable, Err: errors.New("no registry")}}
	opts := task.Options{Name: "t", Provider: p}
	for i := range 10 {
		opts.Samples = append(opts.Samples, task.Sample{ID: fmt.Sprint(i), Spec: &fumehood.Spec{Image: string("ab"[i%2])}})
	}
	_, err := task.Init(t.Context(), opts)
	if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), `initialize task t: sample "1", "3", "5" and 2 more: pull: no registry`) {
		t.Errorf("got %v", err)
	}
	opts.Samples[4].Spec = &fumehood.Spec{Image: "wrong"}
	if _, err = task.Init(t.Context(), opts); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), `sample "4": load: line 3 is wrong`) {
		t.Errorf("got %v", err)
	}
}

func TestInit_interrupt(t *testing.T) {
	p := newFake()
	ctx, cancel := context.WithCancel(t.Context())
	p.wait = func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := task.Init(ctx, task.Options{Name: "t", Provider: p, Samples: []task.Sample{{ID: "a"}}})
	if !errors.Is(err, fumehood.ErrCanceled) {
		t.Errorf("got %v", err)
	}
}

func TestInit_invalidTask(t *testing.T) {
	good := func() task.Options {
		return task.Options{Name: "t", Provider: newFake(), Samples: []task.Sample{{ID: "a"}}}
	}
	for name, c := range map[string]struct {
		change func(*task.Options)
		want   []string
	}{
		"no name":             {func(o *task.Options) { o.Name = "" }, []string{"no name"}},
		"no provider":         {func(o *task.Options) { o.Provider = nil }, []string{"no provider"}},
		"no samples":          {func(o *task.Options) { o.Samples = nil }, []string{"no samples"}},
		"a negative limit":    {func(o *task.Options) { o.SetupTimeout = -1 }, []string{"negative"}},
		"a spec with a name":  {func(o *task.Options) { o.Spec.Name = "x" }, []string{`sample "a"`, "Name"}},
		"a spec that is kept": {func(o *task.Options) { o.Spec.Keep = true }, []string{"Keep"}},
		"a wrong spec":        {func(o *task.Options) { o.Spec.Dir = "relative" }, []string{`sample "a"`, "not absolute"}},
		"several samples": {func(o *task.Options) {
			o.Samples = append(o.Samples,
				task.Sample{ID: "a"}, task.Sample{}, task.Sample{ID: "b", Metadata: map[string]string{"x y": "", "x-y": ""}},
				task.Sample{ID: "c", Files: map[string]task.Content{"db:": {}}}, task.Sample{ID: "d", Files: map[string]task.Content{"f": {Path: "/none"}}},
				task.Sample{ID: "e", Setup: task.Content{Data: "data:;base64,!"}}, task.Sample{ID: "f\xff"})
		}, []string{`sample "a": duplicate id`, `sample "": it has no id`, `sample "b"`, "SAMPLE_METADATA_X_Y", `sample "c": file "db:"`, `sample "d": file "f"`, "/none", `sample "e": setup`, `sample "f\xff": its id "f\xff" is not UTF-8`}},
		"very many": {func(o *task.Options) { o.Samples = make([]task.Sample, 1000) }, []string{`sample "": it has no id`, `and 997 more like it: sample ""`}},
	} {
		opts := good()
		c.change(&opts)
		_, err := task.Init(t.Context(), opts)
		if !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
		if len(err.Error()) > 4000 {
			t.Errorf("%s: %d bytes", name, len(err.Error()))
		}
	}
}

func TestStart_files(t *testing.T) {
	tk := initTask(t, task.Options{Name: "My Sums", Samples: []task.Sample{{
		ID: "one", Files: map[string]task.Content{"in/a": {Text: "A"}, "default:/b": {Data: "data:;base64,Qg=="}}, Setup: task.Content{Text: "echo set up"},
	}}})
	sb, err := tk.Start(t.Context(), "one", 3)
	if err != nil {
		t.Fatal(err)
	}
	info := sb.Info()
	if !strings.HasPrefix(info.Name, "fumehood-my-sums-") || !maps.Equal(info.Labels, map[string]string{task.LabelTask: "My Sums", task.LabelSample: "one", task.LabelEpoch: "3"}) {
		t.Errorf("got %+v", info)
	}
	for path, want := range map[string]string{"in/a": "A", "/b": "B", "ran": "echo set up"} {
		if got, err := sb.ReadFile(t.Context(), path, fumehood.ReadOptions{}); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, dir := range []string{"/work", "/tmp"} {
		list, err := sb.List(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if strings.Contains(f.Name, "fumehood-setup") {
				t.Errorf("the script is still at %s/%s", dir, f.Name)
			}
		}
	}
	if err := tk.End(t.Context(), sb); err != nil {
		t.Error(err)
	}
	if _, err := sb.ReadFile(t.Context(), "in/a", fumehood.ReadOptions{}); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("after End: %v", err)
	}
	if err := tk.End(t.Context(), sb); err != nil {
		t.Error(err)
	}
}

func TestStart_fails(t *testing.T) {
	var removed []task.Removal
	tk := initTask(t, task.Options{
		SetupTimeout: 100 * time.Millisecond, Removed: func(r task.Removal) { removed = append(removed, r) },
		Samples: []task.Sample{
			{ID: "fails", Setup: task.Content{Text: "#!fails"}},
			{ID: "hangs", Setup: task.Content{Text: "#!hangs"}},
			{ID: "starts nothing", Setup: task.Content{Text: "#!nothing"}},
			{ID: "no service", Files: map[string]task.Content{"db:/a": {}}},
			{ID: "no path", Files: map[string]task.Content{"a": {}, "a/b": {}}},
		},
	})
	for sample, c := range map[string]struct {
		class error
		want  []string
	}{
		"fails":          {fumehood.ErrConfig, []string{`start sample "fails", epoch 1: set up in service default: the setup script exited with code 3`, "half done", "no such package"}},
		"hangs":          {fumehood.ErrLimit, []string{"did not end within the limit of 100ms", "begun"}},
		"starts nothing": {fumehood.ErrProgramNotFound, []string{"set up", "nothing"}},
		"no service":     {fumehood.ErrConfig, []string{`file "db:/a"`, `no service "db"`, "only default"}},
		"no path":        {fumehood.ErrNotDirectory, []string{"a/b"}},
	} {
		_, err := tk.Start(t.Context(), sample, 1)
		var typed *fumehood.Error
		if !errors.Is(err, c.class) || !errors.As(err, &typed) {
			t.Errorf("%s: %v", sample, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", sample, want, err)
			}
		}
		var script *task.SetupError
		if has := errors.As(err, &script); has != (sample == "fails" || sample == "hangs") {
			t.Errorf("%s: is a SetupError: %v", sample, has)
		} else if has && script.Result.Stdout.Total == 0 {
			t.Errorf("%s: the output is missing", sample)
		}
	}
	if len(removed) != 5 || slices.ContainsFunc(removed, func(r task.Removal) bool { return r.Err != nil || r.Left != 0 }) {
		t.Errorf("got %+v", removed)
	}
	for sample, epoch := range map[string]int{"fails": 0, "none": 1} {
		if _, err := tk.Start(t.Context(), sample, epoch); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", sample, err)
		}
	}
}

func TestClose_cancelsStarts(t *testing.T) {
	var mu sync.Mutex
	var removed []string
	var log bytes.Buffer
	begun := make(chan struct{})
	p := newFake()
	tk := initTask(t, task.Options{
		Provider: p, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Journal: func(string) (io.WriteCloser, error) { return &watched{began: begun}, nil },
		Samples: []task.Sample{{ID: "a"}, {ID: "hangs", Setup: task.Content{Text: "#!hangs"}}},
		Removed: func(r task.Removal) {
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, fmt.Sprintf("%s %d %v", task.KeyOf(r.Sandbox).Sample, task.KeyOf(r.Sandbox).Epoch, r.Err))
		},
	})
	for epoch := range 3 {
		if _, err := tk.Start(t.Context(), "a", epoch+1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	failed := make(chan error)
	go func() {
		_, err := tk.Start(context.WithoutCancel(ctx), "hangs", 1) // only Close ends this start
		failed <- err
	}()
	<-begun
	interrupt()
	closed := make(chan error)
	go func() { closed <- tk.Close(ctx) }()
	if err := <-failed; !errors.Is(fumehood.ClassOf(err), fumehood.ErrCanceled) || !strings.Contains(err.Error(), "the task is closed") {
		t.Errorf("got %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	slices.Sort(removed)
	if !slices.Equal(removed, []string{"a 1 <nil>", "a 2 <nil>", "a 3 <nil>", "hangs 1 <nil>"}) {
		t.Errorf("got %q", removed)
	}
	if !strings.Contains(log.String(), "sandboxes=3") {
		t.Errorf("got %s", &log)
	}
	if _, err := tk.Start(t.Context(), "a", 1); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// watched reports when the setup script has begun.
type watched struct {
	began  chan struct{}
	closed bool
}

func (w *watched) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"kind":"command"`)) {
		close(w.began)
	}
	return len(p), nil
}

func (w *watched) Close() error {
	if w.closed {
		return errors.New("closed twice")
	}
	w.closed = true
	return nil
}

// stubborn is a provider whose sandboxes cannot be removed at first.
type stubborn struct {
	*prepared
	refuse bool
}

func (p *stubborn) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	sb, err := p.prepared.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return provider.New(&unclosed{sb, p}, spec, nil), nil
}

type unclosed struct {
	fumehood.Sandbox
	sandbox *stubborn
}

func (u *unclosed) Service(string) provider.ServiceBackend { return nil }

func (u *unclosed) Close(ctx context.Context) error {
	if u.sandbox.refuse {
		return errors.New("the daemon says no")
	}
	return u.Sandbox.Close(ctx)
}

func TestClose_retries(t *testing.T) {
	p := &stubborn{prepared: newFake(), refuse: true}
	var removed []task.Removal
	tk := initTask(t, task.Options{Provider: p, Samples: []task.Sample{{ID: "a"}}, Removed: func(r task.Removal) { removed = append(removed, r) }})
	sb, err := tk.Start(t.Context(), "a", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func() error{func() error { return tk.End(t.Context(), sb) }, func() error { return tk.Close(t.Context()) }} {
		if err := end(); !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), sb.Info().Name) || !strings.Contains(err.Error(), "the daemon says no") {
			t.Errorf("got %v", err)
		}
	}
	p.refuse = false
	if err := tk.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(removed) != 3 || removed[1].Err == nil || removed[1].Left != 1 || removed[2].Err != nil || removed[2].Left != 0 {
		t.Errorf("got %+v", removed)
	}
}

func TestTask_kept(t *testing.T) {
	var kept []task.Kept
	tk := initTask(t, task.Options{Keep: true, Kept: func(all []task.Kept) { kept = all }, Samples: []task.Sample{{ID: "b\t"}, {ID: "a", Setup: task.Content{Text: "#!fails"}}}})
	if _, err := tk.Start(t.Context(), "a", 1); err == nil {
		t.Fatal("the setup did not fail")
	}
	for _, epoch := range []int{2, 1} {
		if _, err := tk.Start(t.Context(), "b\t", epoch); err != nil {
			t.Fatal(err)
		}
	}
	if err := tk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range kept {
		got = append(got, fmt.Sprint(task.KeyOf(k.Sandbox).Sample, task.KeyOf(k.Sandbox).Epoch))
	}
	if !slices.Equal(got, []string{"b\t1", "b\t2", "a1"}) {
		t.Errorf("got %q", got)
	}
	var table strings.Builder
	if err := task.WriteKept(&table, []task.Kept{
		{
			Sandbox:  fumehood.Info{Name: "fumehood-x", Labels: map[string]string{task.LabelSample: "b\t", task.LabelEpoch: "1"}},
			Services: []task.KeptService{{Container: "x-default-1", Enter: []string{"docker", "exec"}}, {Container: "x-db-1"}},
			Remove:   []string{"fumehood", "cleanup", "fumehood-x"},
		},
		{Sandbox: fumehood.Info{Labels: map[string]string{task.LabelSample: "a", task.LabelEpoch: "2"}}, Services: []task.KeptService{{}}, Remove: []string{"rm"}},
	}); err != nil {
		t.Fatal(err)
	}
	want := `
SAMPLE  EPOCH  CONTAINER    ENTER        REMOVE
"b\t"   1      x-default-1  docker exec  fumehood cleanup fumehood-x
               x-db-1       -            
a       2      -            -            rm
`
	if "\n"+table.String() != want {
		t.Errorf("got\n%s", &table)
	}
}

func TestTask_journals(t *testing.T) {
	var journals []*file // of the epochs of a
	tk := initTask(t, task.Options{
		Samples: []task.Sample{{ID: "a", Files: map[string]task.Content{"f": {}}, Setup: task.Content{Text: "x"}}, {ID: "b"}},
		Journal: func(sandbox string) (io.WriteCloser, error) {
			if len(journals) == 2 {
				return nil, errors.New("no room")
			}
			journals = append(journals, &file{sandbox: sandbox})
			return journals[len(journals)-1], nil
		},
	})
	for epoch := range 2 {
		sb, err := tk.Start(t.Context(), "a", epoch+1)
		if err != nil {
			t.Fatal(err)
		}
		if err := tk.End(t.Context(), sb); err != nil {
			t.Error(err)
		}
	}
	if _, err := tk.Start(t.Context(), "b", 1); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v", err)
	}
	if len(journals) != 2 {
		t.Errorf("got %d", len(journals))
	}
	for i, f := range journals {
		if !f.closed {
			t.Errorf("the journal of epoch %d is open", i+1)
		}
		for line := range bytes.Lines(f.Bytes()) {
			if !bytes.Contains(line, fmt.Appendf(nil, `"sandbox":%q,"labels":{"epoch":"%d","sample":"a","task":"sums"}`, f.sandbox, i+1)) {
				t.Errorf("got %s", line)
			}
		}
		for _, phase := range []string{"start", "files", "set-up", "close"} {
			if !bytes.Contains(f.Bytes(), fmt.Appendf(nil, `"phase":%q`, phase)) {
				t.Errorf("epoch %d has no phase %s", i+1, phase)
			}
		}
	}
}

type file struct {
	bytes.Buffer
	sandbox string
	closed  bool
}

func (f *file) Close() error {
	f.closed = true
	return nil
}
