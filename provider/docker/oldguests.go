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

// oldFrom is from when on the guest's volume of another version than these is old; zero where an object is something else.
func oldFrom(o engine.Object, current []string) time.Time {
	version, _, _ := strings.Cut(strings.TrimPrefix(guestVolume(o), volumePrefix), "-")
	made := timeOf(o, owner.LabelMade)
	if version == "" || slices.Contains(current, version) || made.IsZero() {
		return time.Time{}
	}
	return made.Add(oldAfter)
}

// spareGuests returns the names of the guest's volumes that are of use to their makers alone: there is an older one with the
// same guest. It is pure.
func spareGuests(objects []engine.Object) map[string]bool {
	spare, there := map[string]bool{}, map[string]bool{}
	for _, o := range firstGuests(objects) {
		guest := o.Name[:strings.LastIndexByte(o.Name, '-')] // without the random part
		spare[o.Name], there[guest] = there[guest], true
	}
	return spare
}

// currentGuests are the versions of the guests that this process delivers; never nil.
func (p *Provider) currentGuests(ctx context.Context) ([]string, error) {
	versions := []string{}
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
// runs at this time makes its volume again when it next needs it.
func (p *Provider) removeOldGuests(ctx context.Context) {
	current, err := p.currentGuests(ctx)
	if err != nil {
		p.opts.Logger.Warn("old guests stay", "error", err)
		return
	}
	p.sweepUnasked(ctx, current, func(o sweep.Object) bool { return o.Cache && !o.Expires.IsZero() })
}
