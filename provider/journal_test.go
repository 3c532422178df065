package provider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/journal"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/fake"
)

// recorded starts a sandbox of the fake provider with a journal, and returns a function that returns the journal's
// lines.
func recorded(t *testing.T, spec fumehood.Spec) (fumehood.Sandbox, func() []map[string]any) {
	t.Helper()
	var out bytes.Buffer
	spec.Journal = journal.New(&out, nil).Logger
	sb := startFake(t, spec)
	return sb, func() []map[string]any { return linesOf(t, out.Bytes()) }
}

func startFake(t *testing.T, spec fumehood.Spec) fumehood.Sandbox {
	t.Helper()
	p := fake.New(fake.Options{Programs: map[string]fake.Program{
		"say": func(_ context.Context, p *fake.Proc) int {
			fmt.Fprint(p.Stdout, strings.Join(p.Args[1:], " "))
			return 3
		},
	}})
	sb, err := p.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return sb
}

func linesOf(t *testing.T, journal []byte) (lines []map[string]any) {
	t.Helper()
	for text := range bytes.Lines(journal) {
		var line map[string]any
		if err := json.Unmarshal(text, &line); err != nil || !bytes.HasSuffix(text, []byte("\n")) {
			t.Fatalf("%v: %q", err, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// kinds returns the kinds of lines in order, with their phases and operations.
func kinds(lines []map[string]any) (all []string) {
	for _, l := range lines {
		kind := l["kind"].(string)
		for _, key := range []string{"phase", "op"} {
			if value, ok := l[key]; ok {
				kind += " " + value.(string)
			}
		}
		all = append(all, kind)
	}
	return all
}

func TestJournal_order(t *testing.T) {
	sb, lines := recorded(t, fumehood.Spec{
		Name: "box", Env: map[string]string{"B": "2", "A": "1"}, ConfigFile: "some/file",
		Labels: map[string]string{"task": "sums", "sample": "one", "epoch": "2"},
	})
	ctx := t.Context()
	if err := sb.WriteFile(ctx, "in", []byte("12345"), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"say", "hello"}, User: "root", Env: map[string]string{"TOKEN": "s3cret"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"nothing"}}); !errors.Is(err, fumehood.ErrProgramNotFound) {
		t.Fatal(err)
	}
	if data, err := sb.ReadFile(ctx, "in", fumehood.ReadOptions{}); err != nil || len(data) != 5 {
		t.Fatal(data, err)
	}
	if _, err := sb.ReadFile(ctx, "missing", fumehood.ReadOptions{}); !errors.Is(err, fumehood.ErrNotFound) {
		t.Fatal(err)
	}
	if err := sb.Rename(ctx, "in", "out"); err != nil {
		t.Fatal(err)
	}
	end := sb.Phase("grading")
	end(nil)
	if err := sb.Close(ctx); err != nil {
		t.Fatal(err)
	}
	all := lines()
	want := []string{"phase start", "sandbox", "file write", "command", "end", "command", "end", "file read", "file read", "file rename", "phase grading", "phase close"}
	if got := kinds(all); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for _, l := range all {
		labels, _ := l["labels"].(map[string]any)
		if l["sandbox"] != "box" || len(labels) != 3 || labels["task"] != "sums" || labels["sample"] != "one" || labels["epoch"] != "2" || l["time"] == nil || l["cut"] != nil {
			t.Errorf("got %v", l)
		}
	}
	abs, err := filepath.Abs("some/file")
	if err != nil {
		t.Fatal(err)
	}
	has := func(line map[string]any, want map[string]any) {
		t.Helper()
		for key, value := range want {
			if got := fmt.Sprint(line[key]); got != fmt.Sprint(value) {
				t.Errorf("%s is %s, want %v, in %v", key, got, value, line)
			}
		}
	}
	redacted := func(names ...string) map[string]any {
		env := map[string]any{}
		for _, name := range names {
			env[name] = "[redacted]"
		}
		return env
	}
	has(all[1], map[string]any{"provider": "fake", "services": []any{map[string]any{"name": "default"}}, "env": redacted("A", "B"), "config_file": abs})
	has(all[2], map[string]any{"path": "in", "bytes": 5, "service": "default", "error": nil})
	has(all[3], map[string]any{"id": 1, "args": []any{"say", "hello"}, "user": "root", "env": redacted("TOKEN"), "dir": "/work"})
	has(all[4], map[string]any{"id": 1, "outcome": "exited", "exit_code": 3, "stdout_bytes": 5, "stderr_bytes": 0, "error": nil})
	has(all[6], map[string]any{"id": 2, "outcome": nil, "exit_code": nil})
	has(all[6]["error"].(map[string]any), map[string]any{"class": "program-not-found"})
	has(all[7], map[string]any{"bytes": 5, "error": nil})
	has(all[8]["error"].(map[string]any), map[string]any{"class": "not-found"})
	has(all[9], map[string]any{"path": "in", "target": "/work/out"})
}

func TestJournal_redaction(t *testing.T) {
	const one, two, three = "first-secret", "second \"secret\"\n", "third-secret"
	t.Setenv("FUMEHOOD_TEST_SECRET", three)
	var out bytes.Buffer
	spec := fumehood.Spec{Name: "box", Env: map[string]string{"ONE": one, "SHORT": "on"}, Journal: journal.New(&out, nil).Logger}
	sb := startFake(t, spec)
	ctx := t.Context()
	for _, cmd := range []fumehood.Cmd{
		{Args: []string{"say", "a" + one + "b", two}, Env: map[string]string{"TWO": two}},
		{Args: []string{"no such " + one}, Dir: "/" + one},
		{Args: []string{"say"}, User: two, Env: map[string]string{"TWO": two}},
	} {
		_, _ = sb.Exec(ctx, cmd) // some fail, which is recorded too
	}
	_, _ = sb.ReadFile(ctx, "/"+one, fumehood.ReadOptions{})
	sb.Phase("any")(fmt.Errorf("about %s", one))
	project := fumehood.Spec{
		Name: "project", Journal: spec.Journal, Env: map[string]string{"TWO": two},
		Compose: &fumehood.Compose{Env: map[string]string{"ONE": one}, HostEnv: []string{"FUMEHOOD_TEST_SECRET"}},
	}
	provider.NewRecorder(&project).Phase("any")(fmt.Errorf("about %q, %s and %s", two, one, three))
	text := out.String()
	for _, secret := range []string{one, "second", three} {
		if strings.Contains(text, secret) {
			t.Errorf("the journal has %q:\n%s", secret, text)
		}
	}
	for _, want := range []string{`["say","a[redacted ONE]b","[redacted TWO]"]`, `"SHORT":"[redacted]"`, "and [redacted FUMEHOOD_TEST_SECRET]", `"path":"/[redacted ONE]"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the journal lacks %s:\n%s", want, text)
		}
	}
	if !strings.Contains(text, "[redacted ONE]") || strings.Contains(text, "redacted SHORT]") {
		t.Errorf("got:\n%s", text)
	}
}

func TestJournal_lineLimit(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20) // a byte that JSON encodes as six
	args, env := []string{"say"}, map[string]string{}
	for i := range 1000 {
		args = append(args, fmt.Sprint(i), long[:1000])
		env[fmt.Sprintf("%s%d", long[:300], i)] = "1"
	}
	labels := map[string]string{}
	for i := range fumehood.MaxLabels / 2 {
		labels[fmt.Sprintf("%s%d", strings.Repeat("n", fumehood.MaxLabel-2), i)] = strings.Repeat("\x02", fumehood.MaxLabel)
		labels[fmt.Sprint(i)] = strings.Repeat("\x02", fumehood.MaxLabel)
	}
	var out bytes.Buffer
	sb := startFake(t, fumehood.Spec{Name: "box", Env: env, ConfigFile: "/f", Labels: labels, Journal: journal.New(&out, nil).Logger})
	_, _ = sb.Exec(t.Context(), fumehood.Cmd{Args: args, Env: env, User: long, Dir: long})
	_ = sb.As(long).Rename(t.Context(), long, long)
	sb.Phase(long)(errors.New(long))
	spec := fumehood.Spec{Name: "box", Journal: journal.New(&out, nil).Logger}
	ports := make([]fumehood.Port, 1000)
	for i := range ports {
		ports[i].Address = long
	}
	provider.NewRecorder(&spec).Network(provider.NetworkAccess{Network: long, Subnets: args, Ports: map[string][]fumehood.Port{long: ports}})
	if got := len(linesOf(t, out.Bytes())); got < 7 {
		t.Fatalf("%d lines", got)
	}
	for line := range bytes.Lines(out.Bytes()) {
		if len(line) > journal.MaxLine || !bytes.Contains(line, []byte(`"cut":true`)) && !bytes.Contains(line, []byte(`"phase":"start"`)) {
			t.Errorf("%d bytes: %.200s", len(line), line)
		}
	}
}

// broken is a writer that can be set to fail after writing a part.
type broken struct {
	bytes.Buffer
	part int // bytes written by each Write; -1 means all
}

func (b *broken) Write(p []byte) (int, error) {
	if b.part < 0 {
		return b.Buffer.Write(p)
	}
	n, _ := b.Buffer.Write(p[:min(b.part, len(p))])
	return n, errors.New("the disk is full")
}

func TestJournal_writeErrors(t *testing.T) {
	var log bytes.Buffer
	w := &broken{part: -1}
	j := journal.New(w, slog.New(slog.NewTextHandler(&log, nil)))
	sb := startFake(t, fumehood.Spec{Name: "box", Journal: j.Logger})
	say := func() {
		t.Helper()
		if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil || res.ExitCode != 3 {
			t.Fatal(res, err)
		}
	}
	say()
	if j.Err() != nil {
		t.Fatal(j.Err())
	}
	before := w.Len()
	for _, w.part = range []int{0, 10, 1, 0} {
		say()
	}
	w.part = -1
	say()
	if err := j.Err(); err == nil || err.Error() != "the disk is full" {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(log.String(), "the disk is full"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
	lines := strings.Split(strings.TrimSuffix(string(w.Bytes()[before:]), "\n"), "\n")
	whole := linesOf(t, []byte(strings.Join(lines[len(lines)-3:], "\n")+"\n"))
	if got := kinds(whole); !slices.Equal(got, []string{"lost", "command", "end"}) || whole[0]["lines"] != 8.0 {
		t.Errorf("got %q: %q", got, lines)
	}
	for _, torn := range lines[:len(lines)-3] {
		if json.Valid([]byte(torn)) {
			t.Errorf("%q is a valid line, but was written partially", torn)
		}
	}
}

func TestJournal_shared(t *testing.T) {
	var out bytes.Buffer
	j := journal.New(&out, nil).Logger
	var wg sync.WaitGroup
	for i := range 8 {
		sb := startFake(t, fumehood.Spec{Name: fmt.Sprintf("box-%d", i), Journal: j})
		for range 4 {
			wg.Go(func() {
				for range 10 {
					if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	ended := map[any]map[any]bool{}
	for _, l := range linesOf(t, out.Bytes()) {
		if l["kind"] == "end" {
			if ended[l["sandbox"]] == nil {
				ended[l["sandbox"]] = map[any]bool{}
			}
			ended[l["sandbox"]][l["id"]] = true
		}
	}
	if len(ended) != 8 {
		t.Errorf("got %d sandboxes", len(ended))
	}
	for name, ids := range maps.All(ended) {
		if len(ids) != 40 {
			t.Errorf("%s has %d ends", name, len(ids))
		}
	}
}

func TestSandbox_Record(t *testing.T) {
	sb := startFake(t, fumehood.Spec{Name: "box"})
	run := func() {
		t.Helper()
		if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil {
			t.Fatal(err)
		}
	}
	run()
	var out bytes.Buffer
	sb.Record(journal.New(&out, nil).Logger)
	run()
	if err := sb.Upload(t.Context(), "/work", io.LimitReader(strings.NewReader(""), 0)); err != nil {
		t.Fatal(err)
	}
	if got := kinds(linesOf(t, out.Bytes())); !slices.Equal(got, []string{"command", "end", "file upload"}) {
		t.Errorf("got %q", got)
	}
}

func TestDescribe(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_HOST", "x")
	spec := fumehood.Spec{
		Labels:  map[string]string{"sample": "s"},
		Compose: &fumehood.Compose{Files: []string{"/a/compose.yaml", "/b"}, Env: map[string]string{"Z": "1", "A": ""}, HostEnv: []string{"FUMEHOOD_TEST_HOST", "FUMEHOOD_TEST_UNSET"}},
	}
	info := provider.Describe(&spec, fumehood.Info{Name: "n"})
	if info.Name != "n" || !maps.Equal(info.Labels, spec.Labels) || info.ConfigFile != filepath.FromSlash("/a/compose.yaml") || !slices.Equal(info.EnvNames, []string{"A", "FUMEHOOD_TEST_HOST", "Z"}) {
		t.Errorf("got %+v", info)
	}
	spec.Compose = &fumehood.Compose{Dockerfile: "/d/Dockerfile"}
	if info := provider.Describe(&spec, fumehood.Info{}); info.ConfigFile != filepath.FromSlash("/d/Dockerfile") || info.EnvNames != nil {
		t.Errorf("got %+v", info)
	}
	many := map[string]string{}
	for i := range fumehood.MaxLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	long := strings.Repeat("a", fumehood.MaxLabel+1)
	for _, bad := range []map[string]string{{"a": "\xff"}, {"a": "a\x00"}, {"a b": ""}, {"": ""}, {"a": long}, {long: "a"}, many} {
		spec := fumehood.Spec{Labels: bad}
		if err := spec.Validate(); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%.100v: %v", bad, err)
		}
	}
}

func TestJournal_notUTF8(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	sb := startFake(t, fumehood.Spec{Journal: journal.New(&out, nil).Logger})
	long := strings.Repeat("é", 5000)
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say", "caf\xe9", long}, Dir: "/d\xff", Env: map[string]string{"A\xff": "b"}}); err != nil {
		t.Error(err)
	}
	if _, err := sb.ReadFile(t.Context(), "/caf\xe9", fumehood.ReadOptions{}); err == nil {
		t.Error("the file exists")
	}
	if strings.ContainsRune(out.String(), '\uFFFD') {
		t.Errorf("the journal has U+FFFD:\n%s", out.String())
	}
	var command *journal.Command
	var file *journal.File
	for line, err := range journal.Read(&out) {
		if err != nil {
			t.Fatal(err)
		}
		switch l := line.(type) {
		case *journal.Command:
			command = l
		case *journal.File:
			file = l
		}
	}
	if command == nil || len(command.Args) != 3 || command.Args[1] != "caf\xe9" || command.Dir != "/d\xff" || command.Env[`A\xff`] == "" {
		t.Errorf("got %+v", command)
	} else if !strings.HasPrefix(long, string(command.Args[2])) || len(command.Args[2]) < 1000 {
		t.Errorf("the cut argument has %d bytes", len(command.Args[2]))
	}
	if file == nil || file.Path != "/caf\xe9" || file.Error == nil || !strings.Contains(file.Error.Message, `caf\xe9`) {
		t.Errorf("got %+v", file)
	}
}
