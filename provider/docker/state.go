package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/owner"
)

// Each sandbox has a folder on this machine while it is there, marked with its owner, with the project as it was
// started: `docker compose` finds the file by the containers' labels. Its sockets are in folders beside it. A
// sandbox works without a folder too, and so what goes wrong here goes to the debug log.

// findStateDir decides where the sandboxes' folders are.
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

// makeFolder makes the sandbox's folder. One of a sandbox that is gone goes.
func (sb *sandbox) makeFolder(ctx context.Context) {
	if sb.folder != "" || sb.p.stateDir == "" {
		return
	}
	folder, err := owner.MakeFolder(sb.p.stateDir, sb.spec.Name, sb.spec.Keep)
	if stale := filepath.Join(sb.p.stateDir, sb.spec.Name); errors.Is(err, fs.ErrExist) && sb.isStale(ctx, stale) {
		if err = owner.Discard(stale); err == nil {
			folder, err = owner.MakeFolder(sb.p.stateDir, sb.spec.Name, sb.spec.Keep)
		}
	}
	if err != nil {
		sb.p.opts.Logger.Debug("the sandbox has no folder on this machine", "sandbox", sb.spec.Name, "error", err)
		return
	}
	sb.folder = folder
}

// isStale says whether a folder of the sandbox's name is of one that is not there any more: its owner is dead, or it
// was kept, and the daemon has nothing of it.
func (sb *sandbox) isStale(ctx context.Context, folder string) bool {
	of := owner.ReadFolder(folder)
	id, err := owner.Parse(of.Owner)
	if !of.Kept && (err != nil || owner.Judge(sb.p.self, id) != owner.Dead) {
		return false
	}
	objects, err := sb.p.engine.Objects(ctx, owner.LabelSandbox+"="+sb.spec.Name, engine.Container, engine.Network, engine.Volume)
	return err == nil && len(objects) == 0
}

// projectFile is where the project is written; empty where it is not.
func (sb *sandbox) projectFile() string {
	if sb.folder == "" {
		return ""
	}
	return filepath.Join(sb.folder, "compose.yaml")
}

// writeProject writes the project as it will be created. It may hold secrets in variables.
func (sb *sandbox) writeProject(project *compose.Project) {
	file := sb.projectFile()
	if file == "" {
		return
	}
	text, err := project.YAML()
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		sb.p.opts.Logger.Debug("the project is not written", "sandbox", sb.spec.Name, "error", err)
	}
}

// removeFolder removes the folder, if there is one.
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
