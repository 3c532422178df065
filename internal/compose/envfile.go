package compose

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/hostpath"
)

// rawFormat is the format of an env_file whose values are taken as they are. It is the docker CLI's, which compose-go lacks.
const rawFormat = "raw"

// serviceEnvironment returns a service's environment with the variables of its files.
func serviceEnvironment(project *types.Project, svc types.ServiceConfig) (types.MappingWithEquals, error) {
	own := maps.Clone(svc.Environment).Resolve(project.Environment.Resolve)
	lookup := func(name string) (string, bool) {
		if value, ok := project.Environment.Resolve(name); ok {
			return value, true
		}
		if value := own[name]; value != nil {
			return *value, true
		}
		return "", false
	}
	vars := own.ToMapping()
	for _, f := range svc.EnvFiles {
		content, err := hostpath.ReadFile(f.Path, maxFile)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !bool(f.Required):
			continue
		case err == nil && f.Format == rawFormat:
			err = parseRaw(f.Path, string(content), vars, lookup)
		case err == nil:
			err = dotenv.ParseWithFormat(bytes.NewReader(content), f.Path, vars, lookup, f.Format)
		}
		if err != nil {
			return nil, err
		}
	}
	return vars.ToMappingWithEquals().OverrideBy(own), nil
}

// parseRaw adds the variables of a file to vars. A line is NAME=VALUE, or the NAME of a variable that lookup may have.
func parseRaw(file, content string, vars map[string]string, lookup func(string) (string, bool)) error {
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(content, "\ufeff")) {
		n++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, set := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") || !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
			return fmt.Errorf("%s:%d: wanted NAME=VALUE in UTF-8", file, n)
		}
		if !set {
			if value, set = lookup(name); !set {
				continue
			}
		}
		vars[name] = value
	}
	return nil
}
