package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/sweep"
)

// oldAfter is the age from which on another version's guest is old: so two versions that are used by turns
// make theirs again once a day at most.
const oldAfter = 24 * time.Hour

// guestVolume is the name of the guest's volume that an object is; "" where it is something else.
func guestVolume(o engine.Object) string {
	if o.Kind == engine.Volume && o.Labels[owner.LabelCache] == owner.GuestCache && strings.HasPrefix(o.Name, volumePrefix) {
		return o.Name
	}
	return ""
}

// versionOf splits the name of a guest's volume into the version and the architecture.
func versionOf(volume string) (version, arch string) {
	version, rest, _ := strings.Cut(strings.TrimPrefix(volume, volumePrefix), "-")
	arch, _, _ = strings.Cut(rest, "-")
	return version, arch
}

// oldGuests tells of each object whether it is a guest's volume of another version than the current ones that was made
// long ago. It is pure.
func oldGuests(objects []engine.Object, current []string, now time.Time) []bool {
	old := make([]bool, len(objects))
	for i, o := range objects {
		volume := guestVolume(o)
		version, _ := versionOf(volume)
		made := timeOf(o, owner.LabelMade)
		old[i] = volume != "" && !slices.Contains(current, version) && !made.IsZero() && now.Sub(made) >= oldAfter
	}
	return old
}

// spareGuests tells of each object whether it belongs to the guest's cache and is of use to its maker alone: an image from
// which a volume was filled, or a volume where there is an older one with the same guest. It is pure.
func spareGuests(objects []engine.Object) []bool {
	first := map[[2]string]string{}
	for _, o := range firstGuests(objects) {
		version, arch := versionOf(o.Name)
		key := [2]string{version, arch}
		if first[key] == "" {
			first[key] = o.Name
		}
	}
	spare := make([]bool, len(objects))
	for i, o := range objects {
		switch volume := guestVolume(o); {
		case volume != "":
			version, arch := versionOf(volume)
			spare[i] = first[[2]string{version, arch}] != volume
		case o.Kind == engine.ImageKind:
			spare[i] = o.Labels[owner.LabelCache] == owner.GuestCache
		}
	}
	return spare
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
	objects, err := p.engine.Objects(ctx, owner.LabelCache+"="+owner.GuestCache, engine.Volume)
	var current []string
	if err == nil {
		current, err = p.currentGuests(ctx)
	}
	if err != nil {
		p.opts.Logger.Warn("old guests stay", "error", err)
		return
	}
	old := oldGuests(objects, current, time.Now())
	for i, o := range objects {
		if !old[i] || p.among != nil && !p.among(marked{sweep.Object{Kind: string(o.Kind), Name: o.Name}, &objects[i]}) {
			continue
		}
		if err := p.engine.Remove(ctx, o); err != nil && !engine.IsGone(err) {
			p.opts.Logger.Warn("an old guest stays", "name", o.Name, "error", err)
		}
	}
}
