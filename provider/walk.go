package provider

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

func (s *service) List(ctx context.Context, dir string) (_ []fumehood.FileInfo, err error) {
	const op = "list"
	record := s.file(op, dir, "")
	defer func() { record.record(err) }()
	abs, err := s.gate(op, dir)
	if err != nil {
		return nil, err
	}
	const overhead = 100 // bytes of an entry in addition to its strings
	var list []fumehood.FileInfo
	room := fumehood.MaxReadFile
	for e, err := range s.files().Walk(ctx, strings.TrimRight(abs, "/")+"/.", 1) {
		if err != nil {
			return nil, classify(ctx, err, op, s.info.Name, dir)
		}
		if e.Path == "." {
			continue
		}
		if room -= len(e.Name) + len(e.LinkTarget) + overhead; room < 0 {
			return nil, &fumehood.Error{
				Op: op, Service: s.info.Name, Path: dir, Class: fumehood.ErrTooLarge,
				Err: fmt.Errorf("the list is larger than the limit of %d bytes", fumehood.MaxReadFile), Hint: "use Walk",
			}
		}
		list = append(list, e.FileInfo)
	}
	slices.SortFunc(list, func(a, b fumehood.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (s *service) Walk(ctx context.Context, root string) iter.Seq2[fumehood.WalkEntry, error] {
	const op = "walk"
	return func(yield func(fumehood.WalkEntry, error) bool) {
		record := s.file(op, root, "")
		var first error // the first error, if any
		defer func() { record.record(first) }()
		abs, err := s.gate(op, root)
		if err != nil {
			first = err
			yield(fumehood.WalkEntry{}, err)
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
