package docker

import (
	"testing"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
)

// TestImageBuild_scope builds the same Dockerfile in two projects.
func TestImageBuild_scope(t *testing.T) {
	of := func(project, text string, buildKit bool) *imageBuild {
		t.Helper()
		d, err := image.Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		return &imageBuild{
			dockerfile: d, buildKit: buildKit,
			source: image.Source{Project: project, Build: &image.Build{Context: "/context", Args: map[string]string{"A": "b"}}},
		}
	}
	const cached, plain = "FROM a\nRUN --mount=type=cache,id=x,target=/x true\n", "FROM a\nRUN true\n"
	if of("/one", cached, true).inputs(nil, "") == of("/two", cached, true).inputs(nil, "") {
		t.Error("projects share an image that contains data of their caches")
	}
	if of("/one", plain, true).inputs(nil, "") != of("/two", plain, true).inputs(nil, "") {
		t.Error("projects do not share an image without caches")
	}
	if first, second := of("/one", cached, true), of("/one", cached, true); first.inputs(nil, "") != second.inputs(nil, "") {
		t.Error("a project builds again")
	}
	triggered := func(project string) string {
		b := of(project, plain, true)
		b.on = map[string]*node{"a": {image: prepared{Image: engine.Image{OnBuild: []string{"RUN --mount=type=cache,target=/x true"}}}}}
		return b.inputs(nil, "")
	}
	if triggered("/one") == triggered("/two") {
		t.Error("projects share an image that contains data of ONBUILD caches")
	}
	args := scopedArgs(map[string]string{"A": "b"}, "scope")
	if len(args) != 2 || args["A"] != "b" || args[image.ScopeArg] != "scope" {
		t.Errorf("the arguments are %v", args)
	}
}
