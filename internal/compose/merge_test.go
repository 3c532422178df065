package compose

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// Merge keys are accepted as by compose-go, and the result is checked. An error names the line of what was merged.
func TestLoad_merge(t *testing.T) {
	p := loadGood(t, `
x-image: &image {image: i}
x-env: &env {A: a, B: b}
x-both: &both
  - *image
  - {init: true}
services:
  a: &a
    <<: *both
    environment: {<<: *env, B: c}
    healthcheck: &check {test: [CMD, "true"], interval: 1s}
  b:
    <<: [*a, {hostname: h}]
    healthcheck: {<<: *check, interval: 2s}
`, fumehood.Compose{})
	b := p.as.Services["b"]
	if b.Image != "i" || !*b.Init || b.Hostname != "h" || env(t, p, "b", "A") != "a" || env(t, p, "b", "B") != "c" || b.HealthCheck.Interval.String() != "2s" {
		t.Errorf("got %+v", b)
	}
	for name, c := range map[string]struct{ file, says string }{
		"an unsafe key":      {"x-a: &a\n  image: i\n  privileged: true\nservices:\n  a:\n    <<: *a\n", "compose.yaml:3: services.a.privileged: "},
		"in a list":          {"x-a: &a\n  image: i\nx-b: &b\n  - *a\n  - devices: [/dev/kvm]\nservices:\n  a:\n    <<: *b\n", "compose.yaml:5: services.a.devices: "},
		"merged twice":       {"x-a: &a\n  pid: host\nx-b: &b\n  <<: *a\n  image: i\nservices:\n  a:\n    <<: *b\n", "compose.yaml:2: services.a.pid: "},
		"its own first":      {"x-a: &a\n  image: i\n  pid: none\nservices:\n  a:\n    <<: *a\n    pid: host\n", "compose.yaml:7: services.a.pid: "},
		"all services":       {"x-s: &s\n  a:\n    image: i\n    privileged: true\nservices:\n  <<: *s\n", "compose.yaml:4: services.a.privileged: "},
		"the top":            {"x-t: &t\n  services:\n    a:\n      image: i\n      privileged: true\n<<: *t\n", "compose.yaml:5: services.a.privileged: "},
		"in a later one":     {"services:\n  a: {image: i}\n---\nx-a: &a\n  privileged: true\nservices:\n  a:\n    <<: *a\n", "compose.yaml:5: services.a.privileged: "},
		"an unknown key":     {"x-a: &a\n  image: i\n  nonsense: true\nservices:\n  a:\n    <<: *a\n", "compose.yaml:3: services.a additional properties 'nonsense' not allowed"},
		"one of itself":      {"services:\n  a: &a\n    image: i\n    privileged: true\n    <<: *a\n", "values with aliases expanded"},
		"a bomb":             {bomb("services:\n  a:\n    image: i\n    <<: *z\n"), "values with aliases expanded"},
		"a bomb in a bomb":   {bomb("services:\n  a:\n    image: i\n    labels: {<<: [*z, *z]}\n"), "values with aliases expanded"},
		"one of no mapping":  {"x-a: &a text\nservices:\n  a:\n    image: i\n    <<: *a\n", "map merge requires map or sequence of maps"},
		"one that is a name": {"x-a: &a {image: i}\nservices:\n  a:\n    \"<<\": *a\n", "compose.yaml:4: services.a additional properties '<<' not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, c.file, fumehood.Compose{}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// bomb returns a file with an anchor z that stands for 2^25 values.
func bomb(rest string) string {
	var b strings.Builder
	b.WriteString("x-a: &a {k: v}\n")
	for c := 'b'; c <= 'z'; c++ {
		b.WriteString("x-" + string(c) + ": &" + string(c) + " {k: [*" + string(c-1) + ", *" + string(c-1) + "], <<: [*" + string(c-1) + ", *" + string(c-1) + "]}\n")
	}
	return b.String() + rest
}

func TestLoad_mergedOrder(t *testing.T) {
	for file, want := range map[string][]string{
		"x-s: &s {z: {image: i}, c: {image: i}}\nservices:\n  <<: *s\n  y: {image: i}\n":                           {"y", "z", "c"},
		"x-s: &s {z: {image: i}}\nx-t: &t {b: {image: i}, a: {image: i}}\nservices: {<<: [*t, *s]}\n":              {"b", "a", "z"},
		"x-s: &s {z: {image: i}, c: {image: i}}\nservices: *s\n":                                                   {"z", "c"},
		"services: {z: {image: i}}\n---\nservices: {y: {image: i}, b: {image: i}}\n":                               {"z", "y", "b"},
		"x-p: {services: &s {z: {image: i}, c: {image: i}}}\nservices: {<<: [*s, {a: {image: i}}], b: {image: i}}": {"b", "z", "c", "a"},
	} {
		p := loadGood(t, file, fumehood.Compose{})
		if !reflect.DeepEqual(p.order, want) || p.main != want[0] {
			t.Errorf("%s: got %q, default %s", file, p.order, p.main)
		}
	}
}
