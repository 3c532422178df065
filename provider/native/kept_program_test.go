//go:build linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// running is a project whose programs do everything that a kept one has to go on with.
const running = `
services:
  default: {image: ` + busybox + `, command: sleep infinity}
  crash:
    image: ` + busybox + `
    command: [sh, -c, "echo x >> /count; echo crashed $$(wc -l < /count); exit 3"]
    restart: always
  twice:
    image: ` + busybox + `
    command: [sh, -c, "echo x >> /count; while [ ! -e /go ]; do sleep 0.05; done; exit 1"]
    restart: on-failure:2
  early:
    image: ` + busybox + `
    command: [sh, -c, "echo x >> /count; exit 1"]
    restart: on-failure:4
  flood:
    image: ` + busybox + `
    command: [sh, -c, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end; touch /end; exec sleep 1000"]
`

// The programs of a kept project run, are started again, and write their logs, after the process that started them has
// closed it.
func TestPod_Open_programs(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	kept := keep(t, d.keeper(t), fumehood.Spec{Compose: composeFile(t, running)})
	name := kept.Info().Name
	if err := kept.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb := d.open(t, name)
	count := func(service string) int {
		n, _ := strconv.Atoi(in(t, sb, service, "wc -l < /count"))
		return n
	}
	before := count("crash")
	conformance.Eventually(t, "the guest starts a program again", func() bool { return count("crash") > before })
	in(t, sb, "twice", "touch /go")
	conformance.Eventually(t, "the guest starts a failed program again", func() bool { return count("twice") == 3 })

	conformance.Eventually(t, "the guest counts the starts before", func() bool { return count("early") == 5 })

	var warnings bytes.Buffer
	p, err := native.New(t.Context(), native.Options{StateDir: string(d), Logger: slog.New(slog.NewTextHandler(&warnings, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.WithoutCancel(t.Context()))
	log := func(service string) string {
		stdout, stderr := logs(t, p, name, service, 0)
		return stdout + stderr
	}
	if got := log("crash"); !strings.HasPrefix(got, "crashed 1\ncrashed 2\n") {
		t.Errorf("a log of all restarts: %q", got)
	}
	conformance.Eventually(t, "the flood is over", func() bool { return in(t, sb, "flood", "ls /end 2>/dev/null") != "" })
	if got := log("flood"); len(got) != 1<<20 || !strings.HasSuffix(got, "x\nend\n") || !strings.Contains(warnings.String(), "bytes=1951429") {
		t.Errorf("%d bytes of a long log; %s", len(got), &warnings)
	}
	if n, m := count("twice"), count("early"); n != 3 || m != 5 {
		t.Errorf("programs that may be started again 2 and 4 times ran %d and %d times", n, m)
	}
}

// logs returns the last lines of each stream of a service's log, or all.
func logs(t *testing.T, p *native.Provider, name, service string, tail int) (stdout, stderr string) {
	t.Helper()
	var text [3]string // by stream
	err := p.Logs(t.Context(), name, service, provider.LogOptions{Tail: tail}, func(s fumehood.Stream, p []byte) { text[s] += string(p) })
	if err != nil {
		t.Fatal(err)
	}
	return text[fumehood.Stdout], text[fumehood.Stderr]
}

// The last lines of a log are counted in each stream.
func TestProvider_Logs_tail(t *testing.T) {
	t.Parallel()
	d := newStateDir(t)
	p := d.keeper(t)
	kept := keep(t, p, fumehood.Spec{Compose: composeFile(t, `
services:
  default: {image: `+busybox+`, command: sleep infinity}
  talker: {image: `+busybox+`, command: [sh, -c, "echo one; echo bad >&2; echo two; touch /done; exec sleep 1000"]}
`)})
	conformance.Eventually(t, "the log is there", func() bool { return in(t, kept, "talker", "ls /done 2>/dev/null") != "" })
	for tail, want := range map[int][2]string{0: {"one\ntwo\n", "bad\n"}, 1: {"two\n", "bad\n"}, 2: {"one\ntwo\n", "bad\n"}} {
		if stdout, stderr := logs(t, p, kept.Info().Name, "talker", tail); stdout != want[0] || stderr != want[1] {
			t.Errorf("tail %d: %q, %q", tail, stdout, stderr)
		}
	}
}

// Stop ends programs for good, also one that is about to be started again.
func TestPod_Stop_programs(t *testing.T) {
	t.Parallel()
	stopPrograms(t, newProvider(t, native.Options{}))
}

func stopPrograms(t *testing.T, p *native.Provider) {
	t.Helper()
	kept := keep(t, p, fumehood.Spec{Compose: composeFile(t, `
services:
  default: {image: `+busybox+`, command: sleep infinity}
  crash: {image: `+busybox+`, command: [sh, -c, "echo x >> /count; exit 3"], restart: always}
  sleeper: {image: `+busybox+`, command: [sh, -c, "echo x >> /count; exec sleep 1000"], restart: always}
`)})
	if err := kept.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb := again(t, p, kept)
	n := in(t, sb, "crash", "wc -l < /count")
	if got := in(t, sb, "crash", "sleep 1; wc -l < /count"); got != n {
		t.Errorf("after Stop: %s runs, then %s", n, got)
	}
	if got := in(t, sb, "sleeper", "wc -l < /count; ps | grep -c '[s]leep 1000'"); got != "1\n0" {
		t.Errorf("a program that was killed: %q", got)
	}
}
