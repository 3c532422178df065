package fumehood

import (
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Tmpfs is a file system in memory; see ParseTmpfs.
type Tmpfs struct {
	Container string // the mount point, clean
	// Options are the file system's own, "name=value". A size is a number of bytes, or a percentage of the machine's
	// memory.
	Options []string
	// Exec reports whether files can be executed.
	Exec, ReadOnly bool
}

// String returns the form that ParseTmpfs reads.
func (t Tmpfs) String() string {
	options := slices.Clone(t.Options)
	if t.Exec {
		options = append(options, "exec")
	}
	if t.ReadOnly {
		options = append(options, "ro")
	}
	if len(options) == 0 {
		return t.Container
	}
	return t.Container + ":" + strings.Join(options, ",")
}

// tmpfsValues match the values of a tmpfs' options. An option without one takes no value.
var tmpfsValues = map[string]*regexp.Regexp{
	"size": regexp.MustCompile(`^([0-9]+)(?:([kmgt])(?:i?b)?|%)?$`), "mode": regexp.MustCompile(`^[0-7]{1,5}$`),
	"uid": regexp.MustCompile(`^[0-9]{1,10}$`), "gid": regexp.MustCompile(`^[0-9]{1,10}$`),
	"nr_inodes": regexp.MustCompile(`^[0-9]{1,15}[kmg]?$`), "nr_blocks": regexp.MustCompile(`^[0-9]{1,15}[kmg]?$`),
	"": nil, "exec": nil, "noexec": nil, "ro": nil, "rw": nil, "nosuid": nil, "nodev": nil,
}

// ParseTmpfs parses PATH[:OPTION,...], the short form of a tmpfs in Compose files. The options are size (such as 64MiB,
// 64m, or 50% of the machine's memory), mode (octal), uid, gid, nr_inodes, nr_blocks, exec, noexec, ro, rw, nosuid and
// nodev. It does not check the path.
func ParseTmpfs(text string) (Tmpfs, error) {
	at, options, _ := strings.Cut(text, ":")
	t := Tmpfs{Container: path.Clean(at)}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return t, fmt.Errorf("the tmpfs %q has a control character", text)
	}
	for option := range strings.SplitSeq(options, ",") {
		name, value, valued := strings.Cut(option, "=")
		form, known := tmpfsValues[name]
		switch {
		case !known:
			return t, fmt.Errorf("%s: not a supported option of a tmpfs", option)
		case form == nil && valued, form != nil && !form.MatchString(strings.ToLower(value)):
			return t, fmt.Errorf("%s: not a valid value for a tmpfs", option)
		}
		switch name {
		case "size":
			size, err := tmpfsSize(value)
			if err != nil {
				return t, fmt.Errorf("%s: %w", option, err)
			}
			t.Options = append(t.Options, "size="+size)
		case "uid", "gid":
			if n, err := strconv.ParseUint(value, 10, 32); err != nil || n == math.MaxUint32 {
				return t, fmt.Errorf("%s: not an id", option)
			}
			t.Options = append(t.Options, option)
		case "mode":
			if n, err := strconv.ParseUint(value, 8, 32); err != nil || n > 0o7777 {
				return t, fmt.Errorf("%s: not a mode", option)
			}
			t.Options = append(t.Options, option)
		case "nr_inodes", "nr_blocks":
			t.Options = append(t.Options, option)
		case "exec", "noexec":
			t.Exec = name == "exec"
		case "ro", "rw":
			t.ReadOnly = name == "ro"
		}
	}
	return t, nil
}

// tmpfsSize returns a size in bytes, or a percentage.
func tmpfsSize(text string) (string, error) {
	parts := tmpfsValues["size"].FindStringSubmatch(strings.ToLower(text))
	n, err := strconv.ParseInt(parts[1], 10, 64)
	unit := map[string]int64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[parts[2]]
	switch {
	case err != nil || n < 1 || n > math.MaxInt64/unit: // 0 would be no limit
		return "", errors.New("not a size")
	case strings.HasSuffix(text, "%"):
		return text, nil
	}
	return strconv.FormatInt(n*unit, 10), nil
}

// ownFolders are those that a sandbox brings along. Nothing in memory is mounted there or below: the guest's program
// is in the last one.
var ownFolders = []string{"/dev", "/proc", "/sys", "/.fumehood"}

func (s *Spec) validateTmpfs(bad func(string, ...any) error) error {
	seen := map[string]bool{}
	for _, m := range s.Mounts {
		seen[path.Clean(m.Container)] = true
	}
	most := s.Limits.WithDefaults().Memory
	for _, text := range s.Tmpfs {
		t, err := ParseTmpfs(text)
		if err != nil {
			return bad("tmpfs %w", err)
		}
		switch at := t.Container; {
		case !path.IsAbs(at) || at == "/":
			return bad("the tmpfs %q needs an absolute path in the sandbox that is not its root", text)
		case slices.ContainsFunc(ownFolders, func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }):
			return bad("the tmpfs at %s is not possible: the sandbox has its own file systems there", at)
		case seen[at]:
			return bad("two mounts at %s", at)
		}
		seen[t.Container] = true
		for _, option := range t.Options {
			value, isSize := strings.CutPrefix(option, "size=")
			if size, err := strconv.ParseInt(value, 10, 64); isSize && err == nil && most > 0 && size > most { // not a percentage
				return bad("the tmpfs at %s has %d bytes, which is above the memory limit of %d, which its content counts towards", t.Container, size, most)
			}
		}
	}
	return nil
}
