package main

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func upTo(n int) []time.Duration {
	samples := make([]time.Duration, n)
	for i := range samples {
		samples[n-1-i] = time.Duration(i + 1) // not sorted
	}
	return samples
}

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		samples []time.Duration
		p       float64
		want    time.Duration
	}{
		{nil, 99, 0},
		{upTo(1), 99, 1},
		{upTo(1), 0, 1},
		{upTo(30), 99, 30},
		{upTo(99), 99, 99},
		{upTo(100), 99, 99},
		{upTo(200), 99, 198},
		{upTo(10), 50, 5},
		{upTo(10), 100, 10},
		{[]time.Duration{7, 7, 7}, 99, 7},
	} {
		if got := percentile(c.samples, c.p); got != c.want {
			t.Errorf("p%v of %v is %d, want %d", c.p, c.samples, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		samples []time.Duration
		want    time.Duration
	}{
		{nil, 0}, {upTo(1), 1}, {upTo(3), 2}, {[]time.Duration{10, 2}, 6}, {[]time.Duration{9, 1, 5, 100}, 7},
	} {
		before := slices.Clone(c.samples)
		if got := median(c.samples); got != c.want {
			t.Errorf("the median of %v is %d, want %d", before, got, c.want)
		}
		if !slices.Equal(before, c.samples) {
			t.Errorf("the samples %v were changed to %v", before, c.samples)
		}
	}
}

func TestRatio(t *testing.T) {
	a, b := []time.Duration{30, 10, 20}, []time.Duration{10, 10, 10}
	if got := ratio(a, b); got != 2 {
		t.Errorf("the ratio is %v, want 2", got)
	}
	if low, high := ratioRange(a, b); low != 1 || high != 3 {
		t.Errorf("its range is %v to %v, want 1 to 3", low, high)
	}
	if low, high := ratioRange(b, b); low != 1 || high != 1 {
		t.Errorf("the range of equal samples is %v to %v, want 1 to 1", low, high)
	}
	loaded := []time.Duration{10, 1000, 100}
	twice := []time.Duration{20, 2000, 200}
	if low, high := ratioRange(twice, loaded); low != 2 || high != 2 {
		t.Errorf("with a load on both, the range is %v to %v, want 2 to 2", low, high)
	}
	if got := ratio(nil, b); !math.IsNaN(got) {
		t.Errorf("the ratio of nothing is %v", got)
	}
}

func TestSelectRows(t *testing.T) {
	all := []row{{name: "exec true", topic: "some topic"}, {name: "write"}, {name: "read", needs: "write"}}
	for only, want := range map[string]struct{ steps, shown string }{
		"":              {"exec true, write, read", createStart + ", " + firstExec + ", " + coldStart + ", exec true, write, read, " + removal},
		"^read$":        {"write, read", "write, read"},
		"^exec":         {"exec true", "exec true"},
		"^some topic":   {"exec true", "exec true"},
		"^remove":       {"", removal},
		"no such thing": {"", ""},
	} {
		steps, shown := selectRows(all, regexp.MustCompile(only))
		names := make([]string, len(steps))
		for i, s := range steps {
			names[i] = s.name
		}
		if got := strings.Join(names, ", "); got != want.steps {
			t.Errorf("-only %q: steps %q, want %q", only, got, want.steps)
		}
		if got := strings.Join(shown, ", "); got != want.shown {
			t.Errorf("-only %q: shown %q, want %q", only, got, want.shown)
		}
	}
}

func TestShares(t *testing.T) {
	if got, want := shares(map[string]float64{"acquire": 3, "solve": 1}), "acquire 75.0 %, setup 0.0 %, solve 25.0 %, score 0.0 %, remove 0.0 %"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := shares(nil); got != "" {
		t.Errorf("without samples: got %q", got)
	}
}

func TestSample_line(t *testing.T) {
	s := sample{Row: "create + start + first exec", Contender: "docker CLI", Took: 1500 * time.Microsecond}
	if got, want := s.line(), "BenchmarkCreateStartFirstExec/by=DockerCLI 1 1500000 ns/op\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	seen := map[string]string{}
	for _, r := range slices.Concat(stepRows(), projectRows(), processRows(), sampleRows()) {
		name := benchmarkName(r.name)
		if other, ok := seen[name]; ok || name == "" {
			t.Errorf("the rows %q and %q have the same name %s", r.name, other, name)
		}
		seen[name] = r.name
	}
}

func TestFacts_config(t *testing.T) {
	got := facts{Date: time.Unix(0, 0).UTC(), Go: "go1", Cores: 2}.config()
	want := "date: 1970-01-01T00:00:00Z\ngo: go1\ncores: 2\nmemory-mib: 0\nrounds: 0\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
