// Package sweep decides what of the things that Fumehood made is to be removed, and removes it. Plan is pure: the
// providers list what there is, and Carry does what the plan says, by each object's own call; Folders does all of that
// where it is folders of this machine.
package sweep

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// Object is something that carries marks of ours.
type Object struct {
	Kind, Name, Sandbox string
	Owner               string // the text form of an owner.ID; anything else is an unknown owner
	Kept, Cache         bool
	Foreign             bool      // it is not proved to be ours
	Unfinished          bool      // a cache that is of no use unless its owner finishes it
	Created             time.Time // zero where it is not known
	Expires             time.Time // when the time of a kept one, or of another version's cache, is over; zero where it has none
	Lease               time.Time // until when an owner that cannot be judged is taken to live; zero means for good

	// Group names the objects of a kind that are removed one after the other; after 5 s the next one doesn't wait any longer. An
	// object with an empty name is in no group.
	Group string
	// Remove removes the object. One that is gone already is no error.
	Remove func(ctx context.Context) error
}

// Facts are what a plan goes by, beside the objects themselves.
type Facts struct {
	Owners map[string]owner.State // by the text form of an owner.ID; who is missing cannot be judged
	Now    time.Time
}

// Folder is a folder of a process, whose name is its sandbox's. It is removed in the way that remove does.
func Folder(f owner.Folder, remove func(ctx context.Context, folder string) error) Object {
	return Object{
		Kind: "folder", Name: f.Path, Sandbox: f.Name, Owner: f.Owner, Kept: f.Kept,
		Remove: func(ctx context.Context) error { return remove(ctx, f.Path) },
	}
}

// Plan decides about each object; the result has one entry for each, in order.
func Plan(objects []Object, facts Facts, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	plan := make([]provider.Leftover, len(objects))
	const op = "clean up"
	missing := slices.Clone(opts.Names)
	for _, pattern := range opts.Foreign {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("foreign objects %q: %w", pattern, err)}
		}
	}
	var held []string
	for i, o := range objects {
		l := provider.Leftover{
			Kind: o.Kind, Name: o.Name, Sandbox: o.Sandbox, Owner: string(owner.Unknown), Kept: o.Kept, Cache: o.Cache, Foreign: o.Foreign,
		}
		if state, judged := facts.Owners[o.Owner]; judged {
			l.Owner = string(state)
		}
		named := o.Sandbox != "" && !o.Cache && slices.Contains(opts.Names, o.Sandbox)
		l.Remove, l.Reason = decide(l, o, facts.Now, named, opts.Caches)
		if len(opts.Names) > 0 && !named && l.Remove && (!l.Cache || !opts.Caches) {
			l.Remove, l.Reason = false, "not named"
		}
		if named {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == o.Sandbox })
			if !l.Remove && !slices.Contains(held, o.Sandbox) {
				held = append(held, o.Sandbox)
			}
		}
		if o.Foreign {
			l.Remove, l.Reason = isForeign(o, opts.Foreign), "its labels name Fumehood, and no seal of this user's proves it"
		}
		plan[i] = l
	}
	switch {
	case len(missing) > 0:
		return nil, &fumehood.Error{
			Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no sandbox %s", strings.Join(missing, ", ")),
			Hint: "`fumehood cleanup --dry-run` lists what there is",
		}
	case held != nil:
		return nil, &fumehood.Error{
			Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("a running process holds %s", strings.Join(held, ", ")),
			Hint: "end that process first",
		}
	}
	return plan, nil
}

// isForeign reports whether a foreign object is among those to remove.
func isForeign(o Object, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, _ := path.Match(pattern, o.Name) // Plan has refused bad patterns
		return matches
	})
}

func decide(l provider.Leftover, o Object, now time.Time, named, caches bool) (remove bool, reason string) {
	lapsed := l.Owner == string(owner.Unknown) && isOver(o.Lease, now)
	switch {
	case l.Cache && isOver(o.Expires, now):
		return true, "a cache of another version"
	case l.Cache && o.Unfinished && (l.Owner == string(owner.Dead) || lapsed):
		return true, "a cache whose owner has ended before it was finished"
	case l.Cache:
		return caches, "a cache"
	case named && (l.Kept || l.Owner != string(owner.Alive)):
		return true, "named"
	case l.Kept && isOver(o.Expires, now):
		return true, "its time is over"
	case l.Kept:
		return false, "kept: name it to remove it"
	case l.Owner == string(owner.Dead):
		return true, "its owner has ended"
	case l.Owner == string(owner.Alive):
		return false, "its owner is running"
	case lapsed:
		return true, "its owner cannot be judged from here, and its lease is over"
	}
	return false, "its owner cannot be judged from here: name it to remove it"
}

// isOver says whether a time has passed; that of what has none never does.
func isOver(at, now time.Time) bool { return !at.IsZero() && now.After(at) }

// HasPassed says whether a plan for these objects depends on what time it is: one of their times is over.
func HasPassed(objects []Object, now time.Time) bool {
	return slices.ContainsFunc(objects, func(o Object) bool { return isOver(o.Expires, now) || isOver(o.Lease, now) })
}

// Judge tells of the owners of objects whether they live, as seen by self. One that cannot be judged lives while a
// claim of its own, by the text form, reaches beyond now.
func Judge(self owner.ID, objects []Object, claims map[string]time.Time, now time.Time) map[string]owner.State {
	owners := map[string]owner.State{}
	for _, o := range objects {
		if _, known := owners[o.Owner]; known {
			continue
		}
		id, err := owner.Parse(o.Owner)
		if err != nil {
			continue
		}
		state := owner.Judge(self, id)
		if state == owner.Unknown && claims[o.Owner].After(now) {
			state = owner.Alive
		}
		owners[o.Owner] = state
	}
	return owners
}
