package alike_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/alike"
)

type outside string

func (o outside) Error() string   { return string(o) + " is outside" }
func (o outside) Outside() string { return string(o) }

func TestErrors_Join(t *testing.T) {
	var all alike.Errors
	if err := all.Join(); err != nil {
		t.Errorf("without errors: %v", err)
	}
	for i := range 44 {
		at := fmt.Sprintf("sample %d", i)
		err := fmt.Errorf("include: %w", outside(fmt.Sprintf("/a/b/%d/c.yaml", i)))
		all.Add(at, err, fmt.Errorf("%s: %w", at, err))
	}
	all.Add("x", errors.New("wrong"), errors.New("x: wrong"))
	want := `sample 0: include: /a/b/0/c.yaml is outside
sample 1: include: /a/b/1/c.yaml is outside
sample 2: include: /a/b/2/c.yaml is outside
and 41 more like it: sample 3, sample 4, sample 5, sample 6, sample 7, sample 8, sample 9, sample 10, sample 11, sample 12, ...
x: wrong
all 44 paths are allowed by: --allow-read /a/b`
	if got := all.Join().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestErrors_Join_kinds(t *testing.T) {
	var all alike.Errors
	for i := range 50 {
		err := fmt.Errorf("kind %s", strings.Repeat("x", i+1))
		all.Add("", err, err)
	}
	if got := all.Join().Error(); strings.Count(got, "kind") != 21 || !strings.HasSuffix(got, "\n30 more errors of other kinds") {
		t.Errorf("got %s", got)
	}
}

func TestErrors_Join_outside(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"/a/b%d/c": "allowed by: --allow-read /a", "/a%d/b": "allowed by: --allow-read /a0/b --allow-read /a1/b "} {
		var all alike.Errors
		for i := range 11 {
			err := outside(fmt.Sprintf(format, i))
			all.Add("here", err, err)
		}
		if got := all.Join().Error(); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", format, got)
		}
	}
}
