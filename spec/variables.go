package spec

import (
	"maps"
	"slices"
	"strings"
)

// Merge decides the variables of a command, of which later ones win: the host's, which are given as by
// os.Environ and count only with IncludeOSEnv, the spec's, those given at spawn and those of the single
// call. Passed are the names of the host's that are in effect, sorted, for the log: values never go
// there.
func (v Variables) Merge(host []string, spawn, call map[string]string) (env map[string]string, passed []string) {
	env = map[string]string{}
	for _, layer := range []map[string]string{v.Env, spawn, call} {
		maps.Copy(env, layer)
	}
	if !v.IncludeOSEnv {
		return env, nil
	}
	own := maps.Clone(env)
	for _, pair := range host {
		name, value, ok := strings.Cut(pair, "=")
		if _, said := own[name]; said || !ok || name == "" { // Windows has names that begin with =
			continue
		}
		env[name] = value
		passed = append(passed, name)
	}
	slices.Sort(passed)
	return env, slices.Compact(passed)
}
