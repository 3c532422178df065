package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
)

// oldAfter is the age after which the guest volume of another version is old. If two versions are used alternately,
// each makes its volume again once a day at most.
const oldAfter = 24 * time.Hour

// guestVolume returns the name of a guest volume, or "" if the object is not a guest volume.
func guestVolume(o engine.Object) string {
	if o.Kind == engine.Volume && o.Labels[owner.LabelCache] == owner.GuestCache && strings.HasPrefix(o.Name, volumePrefix) {
		return o.Name
	}
	return ""
}

// oldFrom returns when a guest volume becomes old, if its version is not in current. It returns the zero time for
// volumes of current versions and for other objects.
func oldFrom(o engine.Object, current []string) time.Time {
	version, _, _ := strings.Cut(strings.TrimPrefix(guestVolume(o), volumePrefix), "-")
	made := timeOf(o, owner.LabelMade)
	if version == "" || slices.Contains(current, version) || made.IsZero() {
		return time.Time{}
	}
	return made.Add(oldAfter)
}

// spareGuests returns the names of redundant guest volumes, for which an older volume with the same guest exists. Only
// the processes that made them may use them. It is pure.
func spareGuests(objects []engine.Object) map[string]bool {
	spare, there := map[string]bool{}, map[string]bool{}
	for _, o := range firstGuests(objects) {
		guest := o.Name[:strings.LastIndexByte(o.Name, '-')] // without the random part
		spare[o.Name], there[guest] = there[guest], true
	}
	return spare
}

// currentGuests returns the versions of the guests that this process delivers. The result is never nil.
func (p *Provider) currentGuests(ctx context.Context) ([]string, error) {
	versions := []string{}
	for _, arch := range guestbin.Architectures {
		if !guestbin.Built(arch) {
			continue // no volume holds it, or only another program's, which makes the volume again
		}
		guest, err := p.guestFor(ctx, arch, p.opts.Logger)
		if err != nil {
			return nil, err
		}
		versions = append(versions, guest.Version)
	}
	return versions, nil
}

// removeOldGuests removes the old guest volumes of other versions that no container uses. The Engine decides whether a
// volume is in use, and refuses to remove it then. A running process of another version makes its volume again when it
// next needs it.
func (p *Provider) removeOldGuests(ctx context.Context) {
	current, err := p.currentGuests(ctx)
	if err != nil {
		p.opts.Logger.Warn("old guests stay", "error", err)
		return
	}
	p.sweepUnasked(ctx, current, func(o sweep.Object) bool { return o.Cache && !o.Expires.IsZero() })
}
