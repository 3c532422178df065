package fumehood

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// List describes what is in a directory, or in the one that a link points to, sorted by name. Links in it
// are described as such. A list over MaxReadFile bytes, about a million names, is an ErrTooLarge.
func (s *Service) List(ctx context.Context, dir string) (_ []FileInfo, err error) {
	const op = "list"
	record := s.file(op, dir, "")
	defer func() { record.end(err) }()
	abs, err := s.gate(op, dir)
	if err != nil {
		return nil, err
	}
	const overhead = 100 // bytes of a description besides its texts
	var list []FileInfo
	room := MaxReadFile
	for e, err := range s.files().Walk(ctx, strings.TrimRight(abs, "/")+"/.", 1) {
		if err != nil {
			return nil, classify(ctx, err, op, s.info.Name, dir)
		}
		if e.Path == "." {
			continue
		}
		if room -= len(e.Name) + len(e.LinkTarget) + overhead; room < 0 {
			return nil, &Error{
				Op: op, Service: s.info.Name, Path: dir, Class: ErrTooLarge,
				Err: fmt.Errorf("the list is larger than the limit of %d bytes", MaxReadFile), Hint: "use Walk",
			}
		}
		list = append(list, e.FileInfo)
	}
	slices.SortFunc(list, func(a, b FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Walk describes root and all that is below it: a directory comes before what is in it, which comes by
// name. Links are described, never followed, root included. What cannot be described, and a directory that
// cannot be read, come with their path and an error, and the walk goes on if the loop does. After an error
// without a path there is nothing more. A tree that changes meanwhile is described as it was met.
func (s *Service) Walk(ctx context.Context, root string) iter.Seq2[WalkEntry, error] {
	const op = "walk"
	return func(yield func(WalkEntry, error) bool) {
		record := s.file(op, root, "")
		var first error // what could not be described, if anything
		defer func() { record.end(first) }()
		abs, err := s.gate(op, root)
		if err != nil {
			first = err
			yield(WalkEntry{}, err)
			return
		}
		for e, err := range s.files().Walk(ctx, abs, -1) {
			at := root
			if e.Path != "" && e.Path != "." {
				at = strings.TrimRight(root, "/") + "/" + e.Path
			}
			err = classify(ctx, err, op, s.info.Name, at)
			if first == nil {
				first = err
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
