package spec

import (
	"maps"
	"slices"
	"strings"
)

// Merge returns the variables of a command. Later ones take precedence: the host's, the spec's, those given at
// spawn, and those of the single call. Host has the form of os.Environ, and is used only with IncludeOSEnv.
// Passed are the sorted names of the host's variables that are in effect, for the log. Values are never logged.
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
		if _, set := own[name]; set || !ok || name == "" { // Windows has names that begin with =
			continue
		}
		env[name] = value
		passed = append(passed, name)
	}
	slices.Sort(passed)
	return env, slices.Compact(passed)
}
