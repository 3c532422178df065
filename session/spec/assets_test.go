package spec

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestMergeAssets(t *testing.T) {
	base := map[string]Asset{"a": {Path: "a"}, "b": {Path: "b", SavePath: "./data//b"}}
	got, err := MergeAssets(base, nil, map[string]Asset{"a": {Path: "group/a"}, "c": {Path: "c"}})
	want := map[string]Asset{"a": {Path: "group/a"}, "b": {Path: "b", SavePath: "./data//b"}, "c": {Path: "c"}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if base["a"].Path != "a" {
		t.Error("the base has changed")
	}
	for asset, path := range map[Asset]string{got["a"]: "/static/group/a", got["b"]: "/static/data/b"} {
		if asset.ContainerPath() != path {
			t.Errorf("%v: got path %s, want %s", asset, asset.ContainerPath(), path)
		}
	}
}

func TestMergeAssets_paths(t *testing.T) {
	for _, p := range []string{"", ".", "./", "..", "../a", "a/../b", "a/..", "/a", `a\b`, `C:\a`, "a\x00"} {
		if _, err := MergeAssets(map[string]Asset{"x": {Path: p}}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "static asset x: path:") {
			t.Errorf("path %q: %v", p, err)
		}
		if p == "" {
			continue // an empty SavePath means Path
		}
		if _, err := MergeAssets(map[string]Asset{"x": {Path: "a", SavePath: p}}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "static asset x: save_path:") {
			t.Errorf("save_path %q: %v", p, err)
		}
	}
	for _, p := range []string{"a", "a/b.txt", "./a", "..a/b..", "a b", "a/"} {
		if _, err := MergeAssets(map[string]Asset{"x": {Path: p, SavePath: p}}); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
}

func TestMergeAssets_overlap(t *testing.T) {
	for says, second := range map[string]Asset{
		"the same path": {Path: "z", SavePath: "./in/data/"}, "below": {Path: "in/data/x"}, "above": {Path: "in"}, "its own path": {Path: "in/data"},
	} {
		if _, err := MergeAssets(map[string]Asset{"one": {Path: "o", SavePath: "in/data"}, "two": second}); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := MergeAssets(map[string]Asset{"one": {Path: "data"}, "two": {Path: "data2"}}); err != nil {
		t.Errorf("separate paths: got %v", err)
	}
}
