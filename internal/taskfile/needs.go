package taskfile

import (
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/spec"
)

// Sandbox is a sandbox that a sample or its grader needs.
type Sandbox struct {
	Sample string // id of the sample
	Spec   fumehood.Spec
	// Build is the environment whose image is built before the first attempt, in place of the spec's. Nil means none.
	Build *spec.Environment
}

// Sandboxes returns the sandboxes of all samples and their graders, in the order in which a run without --shuffle first needs
// them. Nothing is built.
func (f *File) Sandboxes() ([]Sandbox, error) {
	builds := map[*fumehood.Spec]*spec.Environment{}
	for _, b := range f.buildings {
		for _, s := range b.specs {
			builds[s] = b.env
		}
	}
	var all []Sandbox
	for _, s := range f.Samples {
		own, err := spec.WithMetadata(s.spec, s.content.Metadata)
		if err != nil {
			return nil, &fumehood.Error{Op: fmt.Sprintf("%s: sample %q", s.at, s.ID), Class: fumehood.ErrFile, Err: err}
		}
		all = append(all, Sandbox{s.ID, own, builds[&s.spec]})
		if s.grader != nil {
			all = append(all, Sandbox{s.ID, s.grader.Sandbox(), builds[&s.grader.Spec]})
		}
	}
	return all, nil
}
