package image

import (
	"maps"
	"testing"
)

// TestBuild_scope builds the same Dockerfile in two projects.
func TestBuild_scope(t *testing.T) {
	subject := func(project, text string, buildKit bool) *build {
		t.Helper()
		d, err := Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		return &build{
			dockerfile: d, buildKit: buildKit,
			source: Source{Project: project, Build: &Build{Context: "/context", Args: map[string]string{"A": "b"}}},
		}
	}
	const cached, plain = "FROM a\nRUN --mount=type=cache,id=x,target=/x true\n", "FROM a\nRUN true\n"
	if subject("/one", cached, true).inputs(nil, "") == subject("/two", cached, true).inputs(nil, "") {
		t.Error("projects share an image that contains data of their caches")
	}
	if subject("/one", plain, true).inputs(nil, "") != subject("/two", plain, true).inputs(nil, "") {
		t.Error("projects do not share an image without caches")
	}
	if first, second := subject("/one", cached, true), subject("/one", cached, true); first.inputs(nil, "") != second.inputs(nil, "") {
		t.Error("a project builds again")
	}
	triggered := func(project string) string {
		b := subject(project, plain, true)
		b.on = map[string]*node{"a": {image: Image{OnBuild: []string{"RUN --mount=type=cache,target=/x true"}}}}
		return b.inputs(nil, "")
	}
	if triggered("/one") == triggered("/two") {
		t.Error("projects share an image that contains data of ONBUILD caches")
	}
	args := ScopedArgs(map[string]string{"A": "b"}, "scope")
	if len(args) != 2 || args["A"] != "b" || args[ScopeArg] != "scope" {
		t.Errorf("the arguments are %v", args)
	}
}

func TestBuild_inputs(t *testing.T) {
	subject := func(change func(*build)) string {
		b := &build{dockerfile: Dockerfile{Text: "FROM a"}, source: Source{Build: &Build{Args: map[string]string{"A": "1"}}}}
		if change != nil {
			change(b)
		}
		return b.inputs(map[string]string{"a": "sha256:1"}, "context")
	}
	plain := subject(nil)
	for name, same := range map[string]string{
		"its folder":           subject(func(b *build) { b.source.Build.Context = "/elsewhere" }),
		"its service":          subject(func(b *build) { b.source.Service = "x" }),
		"a secret's value":     subject(func(b *build) { b.source.Build.NoCache = true }),
		"the image's name":     subject(func(b *build) { b.source.Image = "x"; b.names = []string{"x"} }),
		"where steps are kept": subject(func(b *build) { b.source.Build.CacheFrom = []string{"x"} }),
	} {
		if same != plain {
			t.Errorf("%s changes the hash", name)
		}
	}
	seen := map[string]string{plain: "nothing"}
	for name, change := range map[string]func(*build){
		"the Dockerfile": func(b *build) { b.dockerfile.Text = "FROM a\nRUN x" },
		"an argument":    func(b *build) { b.source.Build.Args = maps.Clone(map[string]string{"A": "2"}) },
		"the stage":      func(b *build) { b.source.Build.Target = "x" },
		"the network":    func(b *build) { b.source.Build.Network = "none" },
		"the platform":   func(b *build) { b.source.Platform = "linux/arm64" },
		"a label":        func(b *build) { b.source.Build.Labels = map[string]string{"x": "1"} },
		"a host":         func(b *build) { b.source.Build.ExtraHosts = []string{"x:1"} },
		"a secret":       func(b *build) { b.source.Build.Secrets = []Secret{{ID: "x"}} },
		"a limit":        func(b *build) { b.source.Build.Ulimits = []Ulimit{{Name: "nofile"}} },
		"shared memory":  func(b *build) { b.source.Build.ShmSize = 1 },
	} {
		hash := subject(change)
		if before, ok := seen[hash]; ok {
			t.Errorf("%s has the same hash as %s", name, before)
		}
		seen[hash] = name
	}
}
