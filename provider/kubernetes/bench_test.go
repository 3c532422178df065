//go:build linux && amd64

package kubernetes_test

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

// times measures calls of f, and reports their median and 99th percentile.
func times(b *testing.B, f func()) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		began := time.Now()
		f()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	at := func(share float64) float64 { return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000 }
	b.ReportMetric(at(0.5), "ms-p50")
	b.ReportMetric(at(0.99), "ms-p99")
}

var benchOptions = kubernetes.Options{Logger: slog.New(slog.DiscardHandler)}

func BenchmarkStart(b *testing.B) {
	p := newProvider(b, benchOptions)
	times(b, func() {
		sb := start(b, p, fumehood.Spec{Image: debian})
		run(b, sb)
		if err := sb.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkExec(b *testing.B) {
	sb := start(b, newProvider(b, benchOptions), fumehood.Spec{Image: debian})
	times(b, func() { run(b, sb) })
}

func run(b *testing.B, sb fumehood.Sandbox) {
	b.Helper()
	if res, err := sb.Exec(b.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || res.ExitCode != 0 {
		b.Fatal(res, err)
	}
}

func BenchmarkWrite50MiB(b *testing.B) {
	sb, content := start(b, newProvider(b, benchOptions), fumehood.Spec{Image: debian}), bytes.Repeat([]byte("x"), 50<<20)
	times(b, func() {
		if err := sb.WriteFile(b.Context(), "/tmp/file", content, fumehood.WriteOptions{}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkRead50MiB(b *testing.B) {
	sb, content := start(b, newProvider(b, benchOptions), fumehood.Spec{Image: debian}), bytes.Repeat([]byte("x"), 50<<20)
	if err := sb.WriteFile(b.Context(), "/tmp/file", content, fumehood.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	times(b, func() {
		if got, err := sb.ReadFile(b.Context(), "/tmp/file", fumehood.ReadOptions{}); err != nil || len(got) != len(content) {
			b.Fatal(len(got), err)
		}
	})
}
