package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
)

// Sandboxes mount the guest from a volume, which all processes of a user share. A process uses a volume only if its seal
// proves that the user's Fumehood made it, and if the process has read the guest back from the first container that
// mounts it, before that container starts, and found the bytes that it delivers. So neither a volume that another
// process is still filling is used, nor one that somebody else has made or changed.

// volumePrefix begins the names of guest volumes. The version, the architecture and a random part follow.
const volumePrefix = "fumehood-guest-"

// guestVolumeOf is a volume of the guest.
type guestVolumeOf struct {
	name    string
	guest   guestbin.Binary
	checked map[string]bool // by path: its content was read back
}

// ensureGuest returns the volume with the guest for an architecture. It is made where there is none.
func (p *Provider) ensureGuest(ctx context.Context, arch string) (*guestVolumeOf, error) {
	p.mu.Lock()
	known := p.volumes[arch]
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	volume, err := shared(ctx, &p.guests, arch, func(ctx context.Context) (*guestVolumeOf, error) { return p.findOrMakeGuest(ctx, arch) })
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.volumes[arch]; known != nil { // somebody who waited for the same
		return known, nil
	}
	p.volumes[arch] = volume
	return volume, nil
}

func (p *Provider) findOrMakeGuest(ctx context.Context, arch string) (*guestVolumeOf, error) {
	guest, err := p.guestFor(ctx, arch, p.opts.Logger)
	if err != nil {
		return nil, err
	}
	objects, err := p.engine.Objects(ctx, owner.LabelCache+"="+owner.GuestCache, engine.Volume)
	if err != nil {
		return nil, err
	}
	for _, o := range firstGuests(objects) {
		if strings.HasPrefix(o.Name, volumePrefix+guest.Version+"-"+arch+"-") && !p.isBad(o.Name) {
			return &guestVolumeOf{name: o.Name, guest: guest}, nil
		}
	}
	return p.makeGuest(context.WithoutCancel(ctx), guest, arch)
}

// firstGuests returns guests' volumes, the oldest first: all processes choose the same of several.
func firstGuests(objects []engine.Object) []engine.Object {
	volumes := slices.DeleteFunc(slices.Clone(objects), func(o engine.Object) bool { return o.Foreign || guestVolume(o) == "" })
	slices.SortFunc(volumes, func(a, b engine.Object) int {
		return cmp.Or(strings.Compare(a.Labels[owner.LabelMade], b.Labels[owner.LabelMade]), strings.Compare(a.Name, b.Name))
	})
	return volumes
}

// guestTimeout bounds the making of a guest volume.
const guestTimeout = time.Minute

// makeGuest fills a new volume from an image that is removed again. Who makes one removes the old ones of other versions.
func (p *Provider) makeGuest(ctx context.Context, guest guestbin.Binary, arch string) (*guestVolumeOf, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	image, err := p.importGuest(ctx, guest, arch)
	if err != nil {
		return nil, err
	}
	volume := fmt.Sprintf(volumePrefix+"%s-%s-%s", guest.Version, arch, strings.ToLower(rand.Text()[:8]))
	labels := p.ownerLabels()
	labels[owner.LabelCache], labels[owner.LabelMade] = owner.GuestCache, p.clock().UTC().Format(time.RFC3339)
	filler := p.ownerLabels()
	filler[owner.LabelSandbox] = volume
	err = p.engine.FillVolume(ctx, volume, image, compose.GuestDir, labels, filler)
	if err = errors.Join(err, p.engine.Untag(ctx, image)); err != nil {
		return nil, err
	}
	p.removeOldGuests(ctx)
	return &guestVolumeOf{name: volume, guest: guest}, nil
}

// importGuest makes an image that holds the guest and nothing else. It has no owner's label: every container of it would
// inherit that.
func (p *Provider) importGuest(ctx context.Context, guest guestbin.Binary, arch string) (string, error) {
	return p.engine.Import(ctx, arch, guestTree(guest.Program), compose.GuestProgram, map[string]string{
		owner.LabelCache: owner.GuestCache, owner.LabelMaker: p.self.String(),
	})
}

// forgetGuest makes the next start look for the guest's volume again: somebody may have pruned it. A bad one is not used
// any more.
func (p *Provider) forgetGuest(arch string, volume *guestVolumeOf, bad bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.volumes[arch] == volume {
		delete(p.volumes, arch)
	}
	if bad {
		p.badVolumes[volume.name] = true
	}
}

func (p *Provider) isBad(volume string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.badVolumes[volume]
}

// errNotGuest says that a container would run something else than the guest.
var errNotGuest = errors.New("what is at " + compose.GuestProgram + " in it is not the guest")

// checkGuest makes sure that the sandbox's containers, which are not started yet, will run the guest: that the volume holds
// it, and that nothing else can be mounted over it.
func (sb *sandbox) checkGuest(ctx context.Context, volume *guestVolumeOf) error {
	var all []engine.State
	for _, s := range sb.services {
		all = append(all, s.containers...)
	}
	for _, s := range sb.services {
		others := slices.DeleteFunc(slices.Clone(all), func(c engine.State) bool { return c.ID == s.containers[0].ID })
		at, why, err := sb.p.engine.Covering(ctx, s.containers[0], others, compose.GuestDir, compose.GuestDir, compose.SocketDir)
		if err == nil && at != "" {
			e := &fumehood.Error{
				Op: "create service", Service: s.Name, Class: fumehood.ErrConfig,
				Err:  fmt.Errorf("what is mounted at %s could cover %s, which is Fumehood's own: %s", at, compose.GuestDir, why),
				Hint: "mount it at a path that has no links and lies in no other mount, or use another image",
			}
			if at == compose.GuestDir {
				e.Err, e.Hint = fmt.Errorf("%s, which is Fumehood's own, is a link in the image", at), "use another image"
			}
			err = e
		}
		if err != nil {
			return err
		}
	}
	for _, s := range sb.services {
		if err := sb.p.checkGuest(ctx, volume, s.containers[0].ID, s.Guest); err != nil {
			return err
		}
	}
	return nil
}

// checkGuest reads a file of the guest's back from a container that mounts its volume and is not started yet, unless this
// process has done so before.
func (p *Provider) checkGuest(ctx context.Context, volume *guestVolumeOf, container, path string) error {
	p.mu.Lock()
	checked := volume.checked[path]
	p.mu.Unlock()
	if checked {
		return nil
	}
	_, err := shared(ctx, &p.guests, "check "+volume.name+path, func(ctx context.Context) (struct{}, error) {
		same, err := p.engine.HasFile(ctx, container, path, volume.guest.Program)
		if err == nil && !same {
			err = errNotGuest
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if volume.checked == nil {
		volume.checked = map[string]bool{}
	}
	volume.checked[path] = true
	return nil
}

// guestTree is the file system that holds nothing but the guest, as a tar stream.
func guestTree(program []byte) io.Reader {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	dir := strings.TrimPrefix(compose.GuestDir, "/") + "/"
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(compose.SocketDir, "/") + "/", Mode: 0o755},
		// It can be run and not be read, which keeps others from looking into its processes from their first moment on,
		// before it has said so itself: see ptrace(2).
		{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(compose.GuestProgram, "/"), Mode: 0o711, Size: int64(len(program))},
		// gVisor runs only what a user may also read. An unreadable file would protect nothing there; what does is that a
		// process traces its descendants only.
		{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(compose.ReadableGuest, "/"), Mode: 0o755, Size: int64(len(program))},
	} {
		h.Format = tar.FormatPAX
		_ = tw.WriteHeader(&h) // into memory: it cannot fail
		if h.Typeflag == tar.TypeReg {
			_, _ = tw.Write(program)
		}
	}
	_ = tw.Close()
	return &b
}
