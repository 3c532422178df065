package docker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/sweep"
)

// oldAfter is the age from which on another version's guest is old: so two versions that are used by turns
// make theirs anew once a day at most.
const oldAfter = 24 * time.Hour

// volumePrefix is what the names of all guest volumes begin with; the version follows.
const volumePrefix = "fumehood-guest-"

// guestVolume is the volume that an object is, or that it marks as complete; "" where it is neither a
// guest's volume nor its image.
func guestVolume(o engine.Object) string {
	switch {
	case o.Labels[engine.LabelCache] != "guest":
	case o.Kind == engine.Volume:
		return o.Name
	case o.Kind == engine.ImageKind:
		return o.Labels[engine.LabelGuestVolume]
	}
	return ""
}

// oldGuests tells of each object whether it is an old guest of another version than the current ones. It
// is pure. A volume is as old as its image, or by itself where it has none; of what has no known age,
// nothing is old.
func oldGuests(objects []engine.Object, current []string, now time.Time) []bool {
	made := map[string]time.Time{}
	for _, o := range objects {
		volume := guestVolume(o)
		if _, known := made[volume]; !known || o.Kind == engine.ImageKind {
			made[volume] = o.Created
		}
	}
	old := make([]bool, len(objects))
	for i, o := range objects {
		volume := guestVolume(o)
		rest, ours := strings.CutPrefix(volume, volumePrefix)
		version, _, _ := strings.Cut(rest, "-")
		since := made[volume]
		old[i] = ours && !slices.Contains(current, version) && !since.IsZero() && now.Sub(since) >= oldAfter
	}
	return old
}

// currentGuests are the versions of the guests that this process delivers.
func (p *Provider) currentGuests(ctx context.Context) ([]string, error) {
	var versions []string
	for _, arch := range guestbin.Architectures {
		if !guestbin.Built(arch) {
			continue // no volume holds it, or somebody else's, who makes it again
		}
		guest, err := p.guestFor(ctx, arch, p.opts.Logger)
		if err != nil {
			return nil, err
		}
		versions = append(versions, guest.Version)
	}
	return versions, nil
}

// removeOldGuests removes the guests of other versions that are old and that no container uses. Whether one
// does is for the Engine to say, which refuses to remove a volume in use. A process of another version that
// runs at this time makes its volume again when it next needs it. What goes wrong is logged: the next
// one tries again.
func (p *Provider) removeOldGuests(ctx context.Context) {
	objects, err := p.engine.Objects(ctx, engine.LabelCache+"=guest")
	var current []string
	if err == nil {
		current, err = p.currentGuests(ctx)
	}
	if err != nil {
		p.opts.Logger.Warn("old guests stay", "error", err)
		return
	}
	engine.SortForRemoval(objects)
	old := oldGuests(objects, current, time.Now())
	var used inUse
	for i, o := range objects {
		if !old[i] || p.among != nil && !p.among(marked{sweep.Object{Kind: string(o.Kind), Name: o.Name}, &objects[i]}) {
			continue
		}
		if err := used.remove(ctx, p.engine, o); err != nil && !errors.Is(err, fumehood.ErrUnavailable) {
			p.opts.Logger.Warn("an old guest stays", "name", o.Name, "error", err)
		}
	}
}

// unfinishedGuests tells of each object whether it belongs to a guest that is not complete: a volume that no named
// image tells of, or an image without a name. It is pure. While its maker lives, it is being made; else it stays so.
func unfinishedGuests(objects []engine.Object) []bool {
	complete := map[string]bool{}
	for _, o := range objects {
		if o.Kind == engine.ImageKind && len(o.Tags) > 0 {
			complete[guestVolume(o)] = true
		}
	}
	unfinished := make([]bool, len(objects))
	for i, o := range objects {
		volume := guestVolume(o)
		unfinished[i] = strings.HasPrefix(volume, volumePrefix) && (!complete[volume] || o.Kind == engine.ImageKind && len(o.Tags) == 0)
	}
	return unfinished
}

// inUse are guest volumes that the Engine has refused to remove.
type inUse struct {
	mu      sync.Mutex
	volumes map[string]bool
}

func (u *inUse) has(volume string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.volumes[volume]
}

func (u *inUse) add(volume string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.volumes == nil {
		u.volumes = map[string]bool{}
	}
	u.volumes[volume] = true
}

// remove removes an object, of which volumes come before images. The image of a volume that stays has to
// stay too: it says that the volume is complete. Either is an ErrUnavailable then.
func (u *inUse) remove(ctx context.Context, e *engine.Client, o engine.Object) error {
	volume := guestVolume(o)
	if u.has(volume) {
		return &fumehood.Error{Op: "remove " + string(o.Kind) + " " + o.Name, Class: fumehood.ErrUnavailable, Err: errors.New("its volume is in use")}
	}
	err := e.Remove(ctx, o)
	if volume != "" && errors.Is(err, fumehood.ErrUnavailable) {
		u.add(volume)
	}
	return err
}
