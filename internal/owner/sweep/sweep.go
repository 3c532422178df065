// Package sweep decides which of Fumehood's objects to remove, and removes them. Plan is pure. Removal.Run
// lists objects, plans, and carries out the plan by calling each object's Remove. Folders and Local say how objects of this
// machine are found.
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

// Object is an object that carries Fumehood's marks.
type Object struct {
	Kind, Name, Sandbox string
	Owner               string // the text form of an owner.ID; anything else means an unknown owner
	Kept, Cache         bool
	Foreign             bool      // not proved to be ours
	Unfinished          bool      // a cache that is useless unless its owner finishes it
	Created             time.Time // zero if unknown
	Expires             time.Time // when a kept object, or a cache of another version, expires; zero if it does not
	Lease               time.Time // until when an owner that cannot be judged is assumed to live; zero means indefinitely

	// Group names the objects of a kind that are removed one after the other. After 5 s, the removal of the next one
	// starts anyway. An object with an empty group is in no group.
	Group string
	// Remove removes the object. It returns nil if the object is already gone.
	Remove func(ctx context.Context) error
}

// Facts are the inputs of a plan in addition to the objects.
type Facts struct {
	Owners map[string]owner.State // by the text form of an owner.ID; missing owners cannot be judged
	Now    time.Time
}

// Folder returns the Object of a process's folder, whose name is that of its sandbox. It is removed by calling remove.
func Folder(f owner.Folder, remove func(ctx context.Context, folder string) error) Object {
	return Object{
		Kind: "folder", Name: f.Path, Sandbox: f.Name, Owner: f.Owner, Kept: f.Kept, Expires: f.Expires,
		Remove: func(ctx context.Context) error { return remove(ctx, f.Path) },
	}
}

// Plan decides about each object. The result has one entry for each object, in the same order.
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
			l.Remove, l.Reason = isForeign(o, opts.Foreign), "its labels name Fumehood, but it has no seal of this user"
		}
		plan[i] = l
	}
	switch {
	case len(missing) > 0:
		return nil, &fumehood.Error{
			Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no sandbox %s", strings.Join(missing, ", ")),
			Hint: "`fumehood cleanup --dry-run` lists all objects",
		}
	case held != nil:
		return nil, &fumehood.Error{
			Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("a running process holds %s", strings.Join(held, ", ")),
			Hint: "stop that process first",
		}
	}
	return plan, nil
}

// isForeign reports whether a foreign object matches one of the patterns.
func isForeign(o Object, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, _ := path.Match(pattern, o.Name) // Plan has rejected bad patterns
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

// isOver reports whether a time has passed. A zero time never passes.
func isOver(at, now time.Time) bool { return !at.IsZero() && now.After(at) }

// HasPassed reports whether one of the objects' times has passed, so that a plan depends on the current time.
func HasPassed(objects []Object, now time.Time) bool {
	return slices.ContainsFunc(objects, func(o Object) bool { return isOver(o.Expires, now) || isOver(o.Lease, now) })
}

// Judge returns the states of the objects' owners, as seen by self. An owner that cannot be judged counts as alive
// while its claim extends beyond now. Owners and claims have the text form of an owner.ID as key.
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
