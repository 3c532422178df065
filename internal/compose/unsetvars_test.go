package compose

import (
	"bytes"
	"errors"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/sirupsen/logrus"

	"github.com/fumehood/fumehood"
)

// unsetIn returns the variables that compose-go warns about.
func TestUnsetIn(t *testing.T) {
	warning := regexp.MustCompile(`The \\"(\w+)\\" variable is not set`)
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"SET": "x", "EMPTY": ""}[name]
		return v, ok
	}
	was := logrus.StandardLogger().Out
	defer logrus.SetOutput(was)
	for text, want := range map[string]string{
		"":                           "",
		"$SET ${SET} $EMPTY":         "",
		"$A":                         "A",
		"x-${A}/$B_1.c":              "A B_1",
		"$$A $${B} $$$A":             "A",
		"${A-} ${A:-} ${B-x}":        "",
		"${A:-$B}":                   "B",
		"${A:-${B:-${C}}} ${D}":      "C D",
		"${EMPTY:-$B}":               "B",
		"${EMPTY-$B}":                "",
		"${SET:-$B}":                 "",
		"${SET:+$B}":                 "B",
		"${SET+$B} ${EMPTY+$C}":      "B C",
		"${EMPTY:+$B} ${A+$C}":       "",
		"${A:-x}${B}${C:-y}$D":       "B D",
		"${A:-{\"x\": \"${B}\"}} $C": "B C",
		"${A?no}":                    "",
		"${A} ${A:-x}":               "A",
		"\"$A\"\n${B:-\n}":           "A",
		"${":                         "", "${}": "", "$": "", "$1": "", "${A": "",
	} {
		var log bytes.Buffer
		logrus.SetOutput(&log)
		_, _ = template.SubstituteWithOptions(text, lookup)
		var warned []string
		for _, m := range warning.FindAllStringSubmatch(log.String(), -1) {
			warned = append(warned, m[1])
		}
		got := unsetIn(text, lookup)
		slices.Sort(got)
		slices.Sort(warned)
		if strings.Join(got, " ") != want || !slices.Equal(got, warned) {
			t.Errorf("%q: got %q, want %q; compose-go warns about %q", text, got, want, warned)
		}
	}
}

func TestProject_Unset(t *testing.T) {
	dir := project(t, map[string]string{
		"compose.yaml": `
include: [part/compose.yaml]
x-all: &all
  environment: {A: "$ANCHORED"}
services:
  web:
    <<: *all
    image: i
    command: ["$SECOND", "${FIRST:-x}"]
    environment: {A: "${FIRST}", B: "${EMPTY-}", C: "$$NONE", D: "$COMPOSE_PROJECT_NAME"}
  other:
    extends: {file: base.yaml, service: base}
    labels: {a: !reset "$RESET"}
---
services:
  web: {hostname: "a$LATER"}
`,
		"base.yaml":         "services:\n  base:\n    image: i\n    user: \"0$BASE\"\n",
		"part/compose.yaml": "services:\n  part:\n    image: ${PART_IMAGE}\n    hostname: a$PART\n",
		"part/.env":         "PART_IMAGE=i\n",
	})
	p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, u := range p.Unset() {
		if got[u.Name] != "" {
			t.Errorf("%s is there twice", u.Name)
		}
		got[u.Name] = strings.TrimPrefix(u.At, dir+string(filepath.Separator))
	}
	want := map[string]string{
		"ANCHORED": "compose.yaml:4", "SECOND": "compose.yaml:9", "FIRST": "compose.yaml:10", "LATER": "compose.yaml:16",
		"BASE": "base.yaml:4", "PART": filepath.Join("part", "compose.yaml") + ":4",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, c := range p.Apply(Policy{}) {
		if c.Key == "${SECOND}" && !strings.Contains(c.Reason, "compose.yaml:9;") {
			t.Errorf("the note has no line: %q", c.Reason)
		}
	}
}

func TestLoad_unsetImage(t *testing.T) {
	for name, c := range map[string]struct{ file, says string }{
		"alone":      {"services:\n  a:\n    init: true\n    image: ${NOPE}\n", "compose.yaml:4: services.a.image: it is empty: the variable NOPE is not set"},
		"two":        {"services:\n  a:\n    image: $NOPE$NOPE${NOT}\n", "compose.yaml:3: services.a.image: it is empty: the variables NOPE, NOT are not set"},
		"a tag":      {"services:\n  a:\n    image: python:${NOPE}\n", `compose.yaml:3: services.a.image: "python:" is not the name of an image: the variable NOPE is not set`},
		"a registry": {"services:\n  a:\n    image: ${NOPE}/python\n", `compose.yaml:3: services.a.image: "/python" is not the name of an image: the variable NOPE is not set`},
		"an anchor":  {"x-a: &a\n  image: ${NOPE}\nservices:\n  a:\n    <<: *a\n", "compose.yaml:2: services.a.image: it is empty: the variable NOPE is not set"},
		"a merged tag": {
			"x-a: &a\n  image: python:${NOPE}\nservices:\n  a:\n    <<: *a\n",
			`compose.yaml:2: services.a.image: "python:" is not the name of an image: the variable NOPE is not set`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.file, fumehood.Compose{})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := load(t, "services: {a: {init: true}}", fumehood.Compose{}); err == nil || strings.Contains(err.Error(), "not set") {
		t.Errorf("without a variable: got %v", err)
	}
	loadGood(t, "services: {a: {image: \"$NOPE\", build: {dockerfile_inline: FROM i}}}", fumehood.Compose{})
}

func TestLoad_unsetElsewhere(t *testing.T) {
	const head = "services:\n  a:\n    image: i\n    environment: {X: $OTHER}\n"
	for name, c := range map[string]struct{ key, says string }{
		"a mount":        {"volumes: ['${A}:${B}']", "the variables A, B are not set"},
		"only a source":  {"volumes: ['${A}:/x']", "the variable A is not set"},
		"only a target":  {"volumes: ['./x:${A}']", "the variable A is not set"},
		"a whole mount":  {"volumes: ['${A}']", "the variable A is not set"},
		"ports":          {"ports: ['${A}:${B}']", "the variables A, B are not set"},
		"a number":       {"scale: $A", "the variable A is not set"},
		"a size":         {"mem_limit: $A", "the variable A is not set"},
		"a nested value": {"healthcheck: {test: 'true', interval: $A}", "the variable A is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, head+"    "+c.key+"\n", fumehood.Compose{})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "compose.yaml:5") || strings.Contains(err.Error(), "OTHER") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := load(t, head+"    scale: x\n", fumehood.Compose{}); err == nil || strings.Contains(err.Error(), "not set") {
		t.Errorf("of another value: got %v", err)
	}
}
