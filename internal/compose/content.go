package compose

import (
	"fmt"
	"path"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/image"
)

// contentName stands for the file's name in messages about Compose.Content.
const contentName = "Compose.Content"

// readContent takes the project from Compose.Content. Without Compose.Dir the project has no folder: compose-go leaves
// its relative paths as they are, and placed rejects them.
func (l *loading) readContent() (err error) {
	content := []byte(l.src.Content)
	if len(content) > maxFile {
		return fmt.Errorf("%s is larger than %d bytes", contentName, maxFile)
	}
	l.files = []types.ConfigFile{{Filename: contentName, Content: content}}
	l.places.addDocuments(contentName, content)
	if l.src.Dir != "" {
		if l.dir, err = filepath.Abs(l.src.Dir); err != nil {
			return err
		}
	}
	l.gate, err = hostpath.NewGate(ofProject, l.dir, l.src.AllowRead...)
	return err
}

// checkPlace returns an error for a relative path in a project without a folder.
func (l *loading) checkPlace(file string) error { return checkRelative(l.dir, file) }

func checkRelative(dir, file string) error {
	if dir != "" || filepath.IsAbs(file) || path.IsAbs(file) {
		return nil
	}
	return fmt.Errorf("%s is a relative path, but the project has no folder: set Compose.Dir", file)
}

// rejectRelative rejects a relative path in a project without a folder.
func (c *checking) rejectRelative(keys []string, file string) bool {
	err := checkRelative(c.as.WorkingDir, file)
	if err != nil {
		c.refuse(keys, "%w", err)
	}
	return err == nil
}

// needsDir is what a message about a path adds in a project without a folder.
func (p *Project) needsDir() string {
	if p.as.WorkingDir == "" {
		return "; the project has no folder for relative paths: set Compose.Dir"
	}
	return ""
}

// withoutContext reports whether a service of a project without a folder is built from an inline Dockerfile and names
// no context. compose-go then sets the project's folder. Such a build gets an empty context.
func (p *Project) withoutContext(svc *types.ServiceConfig) bool {
	return p.as.WorkingDir == "" && svc.Build.DockerfileInline != "" && svc.Build.Context == "." &&
		!p.places.has([]string{"services", svc.Name, "build", "context"})
}

// folder identifies the project in builds: by its folder or, without one, by its content.
func (p *Project) folder() string {
	if p.as.WorkingDir != "" {
		return p.as.WorkingDir
	}
	return contentName + "@" + image.HashOf(p.content)[:12]
}
