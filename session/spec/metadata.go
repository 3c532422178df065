package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// metadataPrefix is the prefix of the variables that hold a sample's metadata.
const metadataPrefix = "SAMPLE_METADATA_"

// WithMetadata returns a sandbox's spec whose Compose project sees a sample's metadata as variables. See MetadataEnv.
func WithMetadata(s fumehood.Spec, metadata map[string]string) (fumehood.Spec, error) {
	env, err := MetadataEnv(metadata)
	if err != nil || s.Compose == nil || len(env) == 0 {
		return s, err
	}
	c := *s.Compose
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	maps.Copy(c.Env, env)
	s.Compose = &c
	return s, nil
}

// MetadataEnv converts a sample's metadata to the variables of a Compose file. The name is SAMPLE_METADATA_ and
// the key in upper case, with _ for each character that is not an ASCII letter or digit. Values are kept byte for
// byte. Two keys with the same name are an ErrConfig.
func MetadataEnv(metadata map[string]string) (map[string]string, error) {
	env, keys := map[string]string{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		name := metadataPrefix + strings.Map(func(r rune) rune {
			switch {
			case 'a' <= r && r <= 'z':
				return r - 'a' + 'A'
			case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
				return r
			}
			return '_'
		}, key)
		if other, ok := keys[name]; ok {
			return nil, &fumehood.Error{
				Op: "read sample metadata", Class: fumehood.ErrConfig,
				Err: fmt.Errorf("the keys %q and %q are both %s", other, key, name), Hint: "rename one of them",
			}
		}
		keys[name], env[name] = key, metadata[key]
	}
	return env, nil
}
