// Package sweep decides what of the things that Lazaret made is to be removed. Plan is pure: the providers
// list what there is and carry the decision out; Folders does that where it is folders of this machine.
package sweep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/owner"
)

// Object is something that carries marks of ours.
type Object struct {
	Kind, Name, Sandbox string
	Owner               string // the text form of an owner.ID; anything else is an unknown owner
	Kept, Cache         bool
	Old                 bool // a cache that another version of Lazaret made long ago
	Expired             bool // a kept one whose time is over
}

// Folder is a folder of a process, whose name is its sandbox's.
func Folder(f owner.Folder) Object {
	return Object{Kind: "folder", Name: f.Path, Sandbox: f.Name, Owner: f.Owner, Kept: f.Kept}
}

// Plan decides about each object; the result has one entry for each, in order.
func Plan(objects []Object, opts lazaret.CleanupOptions, judge func(owner.ID) owner.State) ([]lazaret.Leftover, error) {
	plan := make([]lazaret.Leftover, len(objects))
	missing := slices.Clone(opts.Names)
	var held []string
	for i, o := range objects {
		l := lazaret.Leftover{
			Kind: o.Kind, Name: o.Name, Sandbox: o.Sandbox, Owner: string(owner.Unknown), Kept: o.Kept, Cache: o.Cache,
		}
		if id, err := owner.Parse(o.Owner); err == nil {
			l.Owner = string(judge(id))
		}
		named := o.Sandbox != "" && !o.Cache && slices.Contains(opts.Names, o.Sandbox)
		l.Remove, l.Reason = decide(l, o, named, opts.Caches)
		if len(opts.Names) > 0 && !named && l.Remove && (!l.Cache || !opts.Caches) {
			l.Remove, l.Reason = false, "not named"
		}
		if named {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == o.Sandbox })
			if !l.Remove && !slices.Contains(held, o.Sandbox) {
				held = append(held, o.Sandbox)
			}
		}
		plan[i] = l
	}
	const op = "clean up"
	switch {
	case len(missing) > 0:
		return nil, &lazaret.Error{
			Op: op, Class: lazaret.ErrConfig, Err: fmt.Errorf("no sandbox %s", strings.Join(missing, ", ")),
			Hint: "`lazaret cleanup --dry-run` lists what there is",
		}
	case held != nil:
		return nil, &lazaret.Error{
			Op: op, Class: lazaret.ErrConfig, Err: fmt.Errorf("a running process holds %s", strings.Join(held, ", ")),
			Hint: "end that process first",
		}
	}
	return plan, nil
}

func decide(l lazaret.Leftover, o Object, named, caches bool) (remove bool, reason string) {
	switch {
	case l.Cache && o.Old:
		return true, "a cache of another version"
	case l.Cache:
		return caches, "a cache"
	case named && (l.Kept || l.Owner != string(owner.Alive)):
		return true, "named"
	case l.Kept && o.Expired:
		return true, "its time is over"
	case l.Kept:
		return false, "kept: name it to remove it"
	case l.Owner == string(owner.Dead):
		return true, "its owner has ended"
	case l.Owner == string(owner.Alive):
		return false, "its owner is running"
	}
	return false, "its owner cannot be judged from here: name it to remove it"
}
