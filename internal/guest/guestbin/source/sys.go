package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// Architectures lists the architectures that a guest is built for, in Go's names.
var Architectures = []string{"amd64", "arm64"}

const sysModule = "golang.org/x/sys"

// pkg is the go command's description of a package.
type pkg struct {
	ImportPath, Dir string
	GoFiles, SFiles []string
	Standard        bool
	Module          *struct{ Path, Version, GoVersion, Dir string }
}

// packages lists the guest's packages outside the standard library.
func packages(ctx context.Context, arch string) ([]pkg, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,SFiles,Standard,Module", Module+"/"+Main)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		if !p.Standard {
			all = append(all, p)
		}
	}
	return all, nil
}

// CompiledFiles returns the files of this module that the go command compiles into the guests, by their path in the
// module.
func CompiledFiles(ctx context.Context) (map[string]bool, error) {
	files := map[string]bool{}
	for _, arch := range Architectures {
		all, err := packages(ctx, arch)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if rel, ok := strings.CutPrefix(p.ImportPath, Module+"/"); ok {
				for _, f := range append(p.GoFiles, p.SFiles...) {
					files[rel+"/"+f] = true
				}
			}
		}
	}
	return files, nil
}

// Sys returns the content for sys.txtar. It needs the module's folder and the go command.
func Sys(ctx context.Context) ([]byte, error) {
	files := map[string]string{} // paths on disk by path in the archive
	var version, goVersion string
	for _, arch := range Architectures {
		all, err := packages(ctx, arch)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if p.Module == nil || p.Module.Path != sysModule {
				if p.Module != nil && p.Module.Path == Module {
					goVersion = p.Module.GoVersion
				}
				continue
			}
			version = p.Module.Version
			files["sys/LICENSE"] = filepath.Join(p.Module.Dir, "LICENSE")
			files["sys/go.mod"] = filepath.Join(p.Module.Dir, "go.mod")
			for _, f := range append(p.GoFiles, p.SFiles...) {
				files["sys"+p.ImportPath[len(sysModule):]+"/"+f] = filepath.Join(p.Dir, f)
			}
		}
	}
	if version == "" || goVersion == "" {
		return nil, errors.New("go list returned no version of " + sysModule)
	}
	archive := txtar.Archive{
		Comment: fmt.Appendf(nil, "Written by `go generate ./internal/guest/guestbin`: the files of %s %s that the guest needs, unchanged.\n", sysModule, version),
		Files: []txtar.File{{
			Name: "go.mod",
			Data: fmt.Appendf(nil, "module %s\n\ngo %s\n\nrequire %s %s\n\nreplace %s => ./sys\n", Module, goVersion, sysModule, version, sysModule),
		}},
	}
	for name, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: content})
	}
	slices.SortFunc(archive.Files, func(a, b txtar.File) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return txtar.Format(&archive), nil
}
