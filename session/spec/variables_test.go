package spec

import (
	"maps"
	"reflect"
	"testing"
)

func TestVariables_Merge(t *testing.T) {
	host := []string{"A=host", "H=host", "H2=a=b", "=C:=C:\\", "EMPTY=", "H=again", "junk"}
	spec := map[string]string{"A": "spec", "B": "spec", "C": "spec"}
	spawn := map[string]string{"B": "spawn", "C": "spawn"}
	call := map[string]string{"C": "call"}
	before := maps.Clone(spec)
	for _, c := range []struct {
		says   string
		vars   Variables
		env    map[string]string
		passed []string
	}{
		{"without the host's", Variables{Env: spec}, map[string]string{"A": "spec", "B": "spawn", "C": "call"}, nil},
		{
			"with the host's",
			Variables{Env: spec, IncludeOSEnv: true},
			map[string]string{"A": "spec", "B": "spawn", "C": "call", "H": "again", "H2": "a=b", "EMPTY": ""},
			[]string{"EMPTY", "H", "H2"},
		},
	} {
		env, passed := c.vars.Merge(host, spawn, call)
		if !maps.Equal(env, c.env) || !reflect.DeepEqual(passed, c.passed) {
			t.Errorf("%s: got %v and %v, want %v and %v", c.says, env, passed, c.env, c.passed)
		}
	}
	if !maps.Equal(spec, before) {
		t.Error("the spec's variables have changed")
	}
}
