package spec

import (
	"regexp"

	"github.com/fumehood/fumehood/internal/strict"
)

// forms define the accepted values in environment specs, by name.
var forms = strict.Forms(map[string]strict.Form{
	"type":        {Choices: []string{TypeDocker, TypeLocal}},
	"binary":      {Wanted: "docker, podman, nerdctl or an absolute path without spaces and quotes", Pattern: regexp.MustCompile(`^(docker|podman|nerdctl|(/|[A-Za-z]:[/\\])[A-Za-z0-9_+./\\-]*[A-Za-z0-9_+-])$`)},
	"target":      {Wanted: "an absolute path in the container, optionally with :ro or :rw", Pattern: regexp.MustCompile(`^/[^:]*[^/.:][^:]*(:ro|:rw)?$`)},
	"mode":        {Choices: []string{"ro", "rw"}},
	"host path":   {Wanted: "a path of the host", Pattern: regexp.MustCompile(`.`)},
	"host port":   {Wanted: "a port from 0 to 65535", Pattern: regexp.MustCompile(`^([0-9]|[1-9][0-9]{1,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$`)},
	"compression": {Choices: []string{"gz", "xz", "zst", "bz2", "none"}},
	"glob":        {Wanted: "a relative glob such as build or **/*.pyc", Valid: isGlob},
	"entry file":  {Wanted: "text with no placeholder but {entry_file}", Valid: func(s string) bool { return unknownPlaceholder(s) == "" }},
})
