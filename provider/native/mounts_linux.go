//go:build amd64 || arm64

package native

import (
	"fmt"
	"path"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// checkMounts rejects mounts that are not allowed. The sandbox mounts exactly the files that were checked.
func (p *Provider) checkMounts(spec fumehood.Spec) ([]setup.Mount, error) {
	mounts := make([]setup.Mount, len(spec.Mounts))
	for i, m := range spec.Mounts {
		file, why, err := hostpath.Mountable(m.Host, m.Writable, p.stateDir, p.cacheDir)
		bad := func(hint, format string, a ...any) error {
			return &fumehood.Error{Op: "mount " + m.Host, Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...), Hint: hint}
		}
		at := path.Clean(m.Container)
		switch {
		case why != "" && !spec.AllowUnsafe:
			return nil, bad("mount another path, or allow it (--allow-unsafe)", "this is not safe: %s", why)
		case err != nil:
			return nil, bad("", "%w", err)
		case setup.Reserved(at):
			return nil, bad("mount it elsewhere", "%s is reserved", at)
		}
		if why != "" {
			p.life.LoggerOf(spec).Warn("the isolation is broken, as the run allows", "sandbox", spec.Name, "path", m.Host, "reason", why)
		}
		mounts[i] = setup.Mount{Host: file.Path, Container: at, Writable: m.Writable, Device: file.Device, Inode: file.Inode}
	}
	return mounts, nil
}
