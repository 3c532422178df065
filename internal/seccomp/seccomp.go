// Package seccomp contains the seccomp profiles of Fumehood's containers, and reads users' profiles. A profile lists
// the system calls that a container may make.
package seccomp

import (
	"bytes"
	"cmp"
	_ "embed" // the profile
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/fumehood/fumehood"
)

//go:generate go run ./generate profile.json

//go:embed profile.json
var profile []byte

// Unconfined is the profile that allows every system call.
const Unconfined = "unconfined"

// maxSize limits the file of a profile, in bytes. Docker's own profile has 18,000.
const maxSize = 1 << 20

// Load returns the profile in a file, as JSON on one line. An empty name means Fumehood's own profile, and
// fumehood.SeccompBrowsers the one for browsers; for Unconfined it returns Unconfined. A file that cannot be read or is not a profile is an ErrFile.
func Load(file string) (string, error) {
	switch file {
	case "":
		return parse(profile)
	case fumehood.SeccompBrowsers:
		return browsers()
	case Unconfined:
		return Unconfined, nil
	}
	line := ""
	text, err := readProfile(file)
	if err == nil {
		line, err = parse(text)
	}
	if err != nil {
		return "", &fumehood.Error{Op: "read seccomp profile", Path: file, Class: fumehood.ErrFile, Err: err}
	}
	return line, nil
}

// Check returns an ErrConfig for a sandbox with a profile of its own, by its name, whose provider has another file.
func Check(sandbox, provider string) error {
	if sandbox == "" || provider == "" || sandbox == provider {
		return nil
	}
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrConfig, Err: fmt.Errorf("the seccomp profile %s and that of the provider, %s, exclude each other", sandbox, provider),
		Hint: "leave out one of them",
	}
}

func readProfile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("larger than %d bytes", maxSize)
	}
	return text, err
}

// actions are the actions that a profile may specify for a system call.
var actions = []specs.LinuxSeccompAction{
	specs.ActKill, specs.ActKillProcess, specs.ActKillThread, specs.ActTrap, specs.ActErrno, specs.ActTrace, specs.ActAllow, specs.ActLog,
}

// parse checks a profile. Fields that the Engine does not know are an error: it would ignore their restrictions.
func parse(text []byte) (string, error) {
	var p seccomp.Seccomp
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return "", fmt.Errorf("invalid JSON: %w", err)
	}
	if !slices.Contains(actions, p.DefaultAction) {
		return "", fmt.Errorf("defaultAction: unknown action %q", p.DefaultAction)
	}
	for i, rule := range p.Syscalls {
		switch {
		case rule == nil, cmp.Or(rule.Name, first(rule.Names)) == "": //nolint:staticcheck // old profiles have Name
			return "", fmt.Errorf("syscalls[%d]: no names", i)
		case !slices.Contains(actions, rule.Action):
			return "", fmt.Errorf("syscalls[%d]: unknown action %q", i, rule.Action)
		}
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return "", errors.New("invalid JSON: text after the profile")
	}
	return line.String(), nil
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
