package compose

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// generate makes the project of a Dockerfile. It has one service that only sleeps, so that the guest becomes its main
// process whatever the image's command is. The policy makes it as safe as the project of an image.
func (l *loading) generate() error {
	dockerfile, err := filepath.Abs(l.src.Dockerfile)
	if err != nil {
		return err
	}
	if l.dir, err = filepath.Abs(cmp.Or(l.src.Dir, filepath.Dir(dockerfile))); err != nil {
		return err
	}
	content, err := yaml.Marshal(map[string]any{"services": map[string]any{DefaultService: map[string]any{
		"build":        map[string]any{"context": l.dir, "dockerfile": dockerfile},
		"entrypoint":   []string{"sleep", "infinity"},
		"network_mode": fumehood.NetworkNone,
	}}})
	if err != nil {
		return err
	}
	content = bytes.ReplaceAll(content, []byte("$"), []byte("$$")) // a $ in a path is not a variable
	l.files = []types.ConfigFile{{Filename: dockerfile, Content: content}}
	l.places.addDocuments(dockerfile, content)
	l.gate, err = hostpath.NewGate(ofProject, l.dir, append(slices.Clip(l.src.AllowRead), dockerfile)...) // the user named the Dockerfile, so it may be read
	return err
}
