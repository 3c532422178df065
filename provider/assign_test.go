package provider_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestSandbox_Assign(t *testing.T) {
	sb, lines := recorded(t, fumehood.Spec{Labels: map[string]string{"task": "t"}})
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"task": "t", "sample": "one", "epoch": "2"}
	if err := sb.Assign(labels); err != nil {
		t.Error(err)
	}
	if got := sb.Info().Labels; !maps.Equal(got, labels) {
		t.Errorf("got %+v", got)
	}
	if err := sb.Assign(map[string]string{"a b": ""}); !errors.Is(err, fumehood.ErrConfig) || !maps.Equal(sb.Info().Labels, labels) {
		t.Errorf("a bad name: %v, %q", err, sb.Info().Labels)
	}
	before := len(lines())
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil {
		t.Fatal(err)
	}
	for i, l := range lines() {
		labels, _ := l["labels"].(map[string]any)
		if labels["task"] != "t" || (labels["sample"] == "one") != (i >= before) {
			t.Errorf("line %d: %v", i, l)
		}
	}
}

func TestSandbox_Check(t *testing.T) {
	sb := startFake(t, fumehood.Spec{})
	if err := sb.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Check(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
