package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
)

// Each existing sandbox has a folder on this machine. The folder is marked with its owner and holds the project as it
// was started. `docker compose` finds that file by the containers' labels. The sockets are in subfolders. A sandbox
// also works without a folder, so errors are only logged, at level debug.

// findStateDir determines where the sandboxes' folders are.
func (p *Provider) findStateDir() {
	dir, err := filepath.Abs(p.opts.StateDir)
	if p.opts.StateDir == "" {
		dir, err = owner.StateDir("docker")
	}
	if err != nil {
		p.opts.Logger.Debug("sandboxes have no folders on this machine", "error", err)
		return
	}
	p.stateDir = dir
}

// makeFolder creates the sandbox's folder. It replaces the folder of a sandbox that no longer exists.
func (sb *sandbox) makeFolder(ctx context.Context) {
	if sb.folder != "" || sb.p.stateDir == "" {
		return
	}
	folder, err := owner.MakeFolder(sb.p.stateDir, sb.Spec.Name, sb.Spec.Keep)
	if stale := filepath.Join(sb.p.stateDir, sb.Spec.Name); errors.Is(err, fs.ErrExist) && sb.isStale(ctx, stale) {
		if err = owner.Discard(stale); err == nil {
			folder, err = owner.MakeFolder(sb.p.stateDir, sb.Spec.Name, sb.Spec.Keep)
		}
	}
	if err != nil {
		sb.p.opts.Logger.Debug("the sandbox has no folder on this machine", "sandbox", sb.Spec.Name, "error", err)
		return
	}
	sb.folder = folder
}

// isStale reports whether a folder of the sandbox's name belongs to a sandbox that no longer exists. Its owner must be
// dead or the sandbox a kept one, and the daemon must have no objects of it.
func (sb *sandbox) isStale(ctx context.Context, folder string) bool {
	folderOwner := owner.ReadFolder(folder)
	id, err := owner.Parse(folderOwner.Owner)
	if !folderOwner.Kept && (err != nil || owner.Judge(sb.p.self, id) != owner.Dead) {
		return false
	}
	objects, err := sb.p.engine.Objects(ctx, owner.LabelSandbox+"="+sb.Spec.Name, engine.Container, engine.Network, engine.Volume)
	return err == nil && len(objects) == 0
}

// projectFile returns the path of the project's file; empty if the project is not written.
func (sb *sandbox) projectFile() string {
	if sb.folder == "" {
		return ""
	}
	return filepath.Join(sb.folder, "compose.yaml")
}

// writeProject writes the project as it will be created. The file may contain secrets in variables.
func (sb *sandbox) writeProject() {
	file := sb.projectFile()
	if file == "" {
		return
	}
	text, err := sb.project.YAML()
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		sb.p.opts.Logger.Debug("the project is not written", "sandbox", sb.Spec.Name, "error", err)
	}
}

// removeFolder removes the folder if there is one.
func (sb *sandbox) removeFolder() error {
	if sb.folder == "" {
		return nil
	}
	if err := owner.Discard(sb.folder); err != nil {
		return err
	}
	sb.folder = ""
	return nil
}
