package spec

import (
	"path/filepath"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/strict"
)

// Difference is a key of an environment spec that has another meaning for SlopCodeBench.
type Difference struct {
	Key           string `json:"key"`
	Line          int    `json:"line,omitempty"` // of the key; 0 if it is absent
	SlopCodeBench string `json:"slopcodebench"`
	Fumehood      string `json:"fumehood"`
}

// CompareSlopCodeBench reads the environment spec in a file, as Load does, and returns the keys, present or absent,
// for which SlopCodeBench would act differently. Keys that SlopCodeBench does not have are not among them.
func CompareSlopCodeBench(path string) (*Environment, []Difference, error) {
	text, err := readInTime(path)
	if err != nil {
		return nil, nil, err
	}
	e, lines, err := parse(path, text)
	if err != nil {
		return nil, nil, err
	}
	var found []Difference
	for _, d := range differences {
		if d.in(compared{e, lines}) {
			found = append(found, Difference{d.key, lines[d.key], d.docker, d.fumehood})
		}
	}
	return e, found, nil
}

// compared is a spec with the lines of its keys.
type compared struct {
	*Environment
	lines map[string]int
}

func (c compared) has(key string) bool { return c.lines[key] > 0 }

func (c compared) docker() bool { return c.Type == TypeDocker }

// hasMount reports whether one of the extra mounts is such a one. Path is that of its value.
func (c compared) hasMount(is func(m fumehood.Mount, path string) bool) bool {
	return slices.ContainsFunc(c.Docker.ExtraMounts, func(m fumehood.Mount) bool { return is(m, "docker.extra_mounts."+strict.Short(m.Host)) })
}

// differences are the rows of the table in docs/spec.md.
var differences = []struct {
	key, docker, fumehood string
	in                    func(compared) bool
}{
	{"type", "`local` runs", "`local` needs `--provider local`", func(c compared) bool { return c.Type == TypeLocal }},
	{"docker.image", "the base of an image with Node, Rust and a user 1000", "runs as it is", func(c compared) bool {
		return c.docker() && c.Docker.Build == nil
	}},
	{"docker.network", "absent: `bridge`", "absent: none", func(c compared) bool { return c.docker() && !c.has("docker.network") }},
	{"docker.network", "`host` and existing networks are used", "they need `--allow-unsafe`", func(c compared) bool {
		return CheckNetwork("docker.network", c.Docker.Network) != nil
	}},
	{"docker.extra_mounts", "a mapping without `mode` is writable", "it is read-only", func(c compared) bool {
		return c.hasMount(func(_ fumehood.Mount, path string) bool { return c.has(path+".bind") && !c.has(path+".mode") })
	}},
	{"docker.extra_mounts", "`rw` changes the host's files", "`rw` is a private copy of a path of the workspace; other paths need `--allow-unsafe`", func(c compared) bool {
		return c.hasMount(func(m fumehood.Mount, _ string) bool { return m.Writable })
	}},
	{"docker.extra_mounts", "host paths may be anywhere", "outside of the workspace and the spec's folder they need `--allow-read`", func(c compared) bool {
		dir, err := filepath.Abs(filepath.Dir(c.File))
		return c.hasMount(func(m fumehood.Mount, _ string) bool {
			return filepath.IsAbs(m.Host) && (err != nil || !within(dir, m.Host))
		})
	}},
	{"docker.mount_workspace", "`false`: the container has no workspace", "`false`: it gets a copy, which is fetched at the end", func(c compared) bool {
		return c.Docker.MountWorkspace != nil && !*c.Docker.MountWorkspace
	}},
	{"docker.user", "absent: 1000:1000 in evaluations; for agents `HUID:HGID`, else root", "absent: `HUID:HGID`, else the host's user in evaluations; for agents the image's", func(c compared) bool {
		return c.docker() && !c.has("docker.user")
	}},
	{"environment.include_os_env", "`true` passes variables on", "under type docker it needs `--allow-unsafe`", func(c compared) bool {
		return c.docker() && c.Environment.Environment.IncludeOSEnv
	}},
	{"setup.resume_commands", "run once, when an agent resumes", "run before each command in place of `commands`, in each session from a snapshot", func(c compared) bool {
		return len(c.Setup.ResumeCommands) > 0
	}},
	{"setup.resume_commands", "`[]`: as absent", "`[]`: nothing runs in place of `commands`", func(c compared) bool {
		return c.has("setup.resume_commands") && len(c.Setup.ResumeCommands) == 0
	}},
	{"setup.login_shell", "always a login shell", "a login shell only if `true`, never in evaluations", func(c compared) bool {
		return c.docker() && !c.Setup.LoginShell
	}},
	{"setup.timeout", "absent: no limit", "absent: `10m`", func(c compared) bool {
		return !c.has("setup.timeout") && len(c.Setup.Commands)+len(c.Setup.EvalCommands)+len(c.Setup.ResumeCommands) > 0
	}},
	{"commands.command", "absent: `python`", "absent: an entry cannot be run", func(c compared) bool { return !c.has("commands.command") }},
	{"commands.entry_file", "absent: `{entry_file}`", "absent: nothing follows the command", func(c compared) bool { return !c.has("commands.entry_file") }},
	{"snapshot.keep_globs", "`[]` keeps everything", "`[]` keeps nothing", func(c compared) bool {
		return c.has("snapshot.keep_globs") && len(c.Snapshot.KeepGlobs) == 0
	}},
	{"snapshot.keep_globs", "`*` also matches `/`; only files match", "`*` stops at `/`, `**` does not; a matching folder includes what is in it", func(c compared) bool {
		return len(c.Snapshot.KeepGlobs) > 0
	}},
	{"snapshot.ignore_globs", "absent: `*.pyc`, `venv/*`, `.venv/*`, `.evaluation_tests/*`", "absent: nothing is left out", func(c compared) bool {
		return !c.has("snapshot.ignore_globs")
	}},
	{"snapshot.ignore_globs", "`*` also matches `/`; `tests/assets` is left out too", "`*` stops at `/`, `**` does not; only what matches is left out", func(c compared) bool {
		return len(c.Snapshot.IgnoreGlobs) > 0
	}},
	{"snapshot.compression", "`bz2` is written", "`bz2` is read; new snapshots are `gz`", func(c compared) bool { return c.Snapshot.Compression == "bz2" }},
	{"snapshot.archive_save_dir", "absent: a temporary folder", "absent: archives are not saved", func(c compared) bool {
		return !c.has("snapshot.archive_save_dir")
	}},
	{"snapshot.archive_save_dir", "may be anywhere", "outside of the spec's folder and the working directory it needs `--allow-unsafe`", func(c compared) bool {
		return c.has("snapshot.archive_save_dir")
	}},
	{"limits", "no limits", "absent: 2 GiB of memory, 1024 processes", func(c compared) bool {
		return c.docker() && (c.Limits.Memory == 0 || c.Limits.PIDs == 0)
	}},
}
