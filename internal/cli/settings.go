package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// settingAnnotation marks flags whose value may come from the environment or the configuration file.
const settingAnnotation = "fumehood-setting"

func markSettings(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[settingAnnotation] = []string{"true"}
	}
}

func isSetting(f *pflag.Flag) bool { return len(f.Annotations[settingAnnotation]) > 0 }

// settings supplies the values of flags that were not given on the command line.
type settings struct {
	env        func(string) (string, bool)
	configFile string          // "" if its folder cannot be determined
	used       map[string]bool // flags set by a variable or the file
}

// configFile returns the path of the configuration file: $XDG_CONFIG_HOME/fumehood/config.yaml, as in the XDG Base
// Directory specification. Without that variable it is below os.UserConfigDir. It is "" if there is no such folder.
func configFile() string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir != "" && !filepath.IsAbs(dir) { // the specification ignores relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return ""
		}
	}
	return filepath.Join(dir, "fumehood", "config.yaml")
}

func envName(flag string) string {
	return "FUMEHOOD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// apply sets each flag of cmd that is a setting and was not given, from the environment or else from the
// configuration file. It returns all errors.
func (s *settings) apply(cmd *cobra.Command) error {
	config, err := s.readSettings(knownSettings(cmd.Root()))
	s.used = map[string]bool{}
	errs := []error{err}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || !isSetting(f) {
			return
		}
		defer func() { s.used[f.Name] = f.Changed }()
		if value, ok := s.env(envName(f.Name)); ok {
			if err := set(cmd.Flags(), f, value); err != nil {
				errs = append(errs, fmt.Errorf("variable %s: %w", envName(f.Name), err))
			}
			return
		}
		if entry, ok := config[f.Name]; ok {
			err := set(cmd.Flags(), f, entry.value)
			if _, list := f.Value.(pflag.SliceValue); list && err == nil {
				err = absolute(entry.value)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %s: %w", s.configFile, entry.line, f.Name, err))
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	return nil
}

// set sets a flag. The value of a repeatable flag is a list of paths, separated as in PATH.
func set(flags *pflag.FlagSet, f *pflag.Flag, value string) error {
	if _, list := f.Value.(pflag.SliceValue); !list {
		return flags.Set(f.Name, value)
	}
	for _, path := range filepath.SplitList(value) {
		if path == "" {
			continue // an empty value or an extra separator does not mean the current folder
		}
		if err := flags.Set(f.Name, path); err != nil {
			return err
		}
	}
	return nil
}

// absolute rejects relative paths, since the configuration file applies in all folders.
func absolute(list string) error {
	for _, path := range filepath.SplitList(list) {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%q is not an absolute path", path)
		}
	}
	return nil
}

// knownSettings returns the sorted names of the settings of all commands.
func knownSettings(root *cobra.Command) []string {
	var names []string
	for _, cmd := range append(root.Commands(), root) {
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				if isSetting(f) && !slices.Contains(names, f.Name) {
					names = append(names, f.Name)
				}
			})
		}
	}
	slices.Sort(names)
	return names
}

// configEntry is one setting of the configuration file.
type configEntry struct {
	value string
	line  int
}

// readSettings reads the configuration file, a mapping of settings to plain values. Unknown and duplicate keys are errors. It
// returns all errors, and the valid settings.
func (s *settings) readSettings(known []string) (map[string]configEntry, error) {
	if s.configFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.configFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil // empty
		}
		return nil, fmt.Errorf("%s: %w", s.configFile, err)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, fmt.Errorf("%s:%d: one document was expected", s.configFile, more.Content[0].Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", s.configFile, err)
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil // empty too
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: a mapping of settings to values was expected", s.configFile, top.Line)
	}
	config := map[string]configEntry{}
	var errs []error
	bad := func(line int, format string, a ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", s.configFile, line, fmt.Sprintf(format, a...)))
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		_, twice := config[key.Value]
		switch {
		case twice:
			bad(key.Line, "%q is set twice", key.Value)
			continue
		case !slices.Contains(known, key.Value):
			bad(key.Line, "there is no setting %q, only %s", key.Value, strings.Join(known, ", "))
			continue
		case value.Kind != yaml.ScalarNode:
			bad(value.Line, "%s: a plain value was expected", key.Value)
			continue
		}
		config[key.Value] = configEntry{value: value.Value, line: value.Line}
	}
	return config, errors.Join(errs...)
}
