package fumehood

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestCompose_offline(t *testing.T) {
	for want, c := range map[string]Compose{
		"": {Content: "x", Offline: true}, "Offline excludes Egress": {Content: "x", Offline: true, Egress: EgressInternet}, "and AllowUnsafe": {Content: "x", Offline: true, AllowUnsafe: true},
	} {
		err := (&Spec{Compose: &c}).Validate()
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

func TestComposeOf(t *testing.T) {
	type service struct {
		Image   string            `json:"image"`
		Command []string          `json:"command,omitempty"`
		Env     map[string]string `json:"environment,omitempty"`
	}
	for name, c := range map[string]struct {
		project any
		want    string
	}{
		"a struct": {
			struct {
				Services map[string]*service `json:"services"`
			}{map[string]*service{"web": {Image: "i", Command: []string{"echo", "$$HOME"}}}},
			`{"services":{"web":{"image":"i","command":["echo","$$HOME"]}}}`,
		},
		"a map":         {map[string]any{"services": map[string]any{"web": map[string]any{"image": "i", "mem_limit": 64 << 20}}}, `{"services":{"web":{"image":"i","mem_limit":67108864}}}`},
		"a replacement": {map[string]string{"name": "\ufffd \\ufffd"}, "{\"name\":\"\ufffd \\\\ufffd\"}"},
	} {
		project, err := ComposeOf(c.project)
		if err != nil || project.Content != c.want {
			t.Errorf("%s: got %+v, %v", name, project, err)
			continue
		}
		spec := Spec{Compose: project}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Error(err)
		}
		var again Spec
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, spec) {
			t.Errorf("%s: decoding gives %+v, %v", name, again, err)
		}
	}
	for name, bad := range map[string]any{"a function": func() {}, "no UTF-8": map[string]any{"name": "a\xff"}, "no UTF-8 after a backslash": map[string]any{"name": "\\\xff"}} {
		if project, err := ComposeOf(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: got %+v, %v", name, project, err)
		}
	}
}
