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
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/owner"
)

// Sandboxes mount the guest from a volume, which all processes of a user share. A process uses a volume only if two
// conditions hold. The volume's seal proves that the user's Fumehood made it. And before the first container that
// mounts it starts, the process has read the guest back from it and found the SHA-256 of the guest that it delivers. So a
// process uses neither a volume that another process is still filling, nor one that somebody else made or changed.

// volumePrefix is the prefix of the names of guest volumes. The version, the architecture and a random part follow.
const volumePrefix = "fumehood-guest-"

// guestVolumeOf is a volume that holds the guest.
type guestVolumeOf struct {
	name    string
	guest   guestbin.Binary
	checked map[string]bool // by path: the content was read back and is correct
}

// ensureGuest returns the volume with the guest for an architecture, and creates it if necessary.
func (p *Provider) ensureGuest(ctx context.Context, arch string) (*guestVolumeOf, error) {
	p.mu.Lock()
	known := p.volumes[arch]
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	volume, err := image.Share(ctx, &p.guests, arch, func(ctx context.Context) (*guestVolumeOf, error) { return p.findOrMakeGuest(ctx, arch) })
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.volumes[arch]; known != nil { // set by a caller that shared the search
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

// firstGuests returns the guest volumes, oldest first, so that all processes choose the same one of several.
func firstGuests(objects []engine.Object) []engine.Object {
	volumes := slices.DeleteFunc(slices.Clone(objects), func(o engine.Object) bool { return o.Foreign || guestVolume(o) == "" })
	slices.SortFunc(volumes, func(a, b engine.Object) int {
		return cmp.Or(strings.Compare(a.Labels[owner.LabelMade], b.Labels[owner.LabelMade]), strings.Compare(a.Name, b.Name))
	})
	return volumes
}

// guestTimeout bounds the creation of a guest volume.
const guestTimeout = time.Minute

// makeGuest fills a new volume from a temporary image. After that it removes old guest volumes of other versions.
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

// importGuest creates an image that holds only the guest. The image has no owner label, because every container of it
// would inherit the label.
func (p *Provider) importGuest(ctx context.Context, guest guestbin.Binary, arch string) (string, error) {
	program, err := guest.Program()
	if err != nil {
		return "", err
	}
	return p.engine.Import(ctx, arch, guestTree(program), compose.GuestProgram, map[string]string{
		owner.LabelCache: owner.GuestCache, owner.LabelMaker: p.self.String(),
	})
}

// forgetGuest makes the next start look for a guest volume again, because the known one may have been pruned. If bad is
// set, the volume is not used again.
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

// errNotGuest is returned if a container would run something other than the guest.
var errNotGuest = errors.New("container file " + compose.GuestProgram + " is not the guest")

// checkGuest makes sure that the sandbox's containers, which are not started yet, will run the guest: the volume holds
// the guest, and nothing else can be mounted over it.
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
				Err:  fmt.Errorf("mount at %s could cover %s, which is reserved for Fumehood: %s", at, compose.GuestDir, why),
				Hint: "mount it at a path without links and outside other mounts, or use another image",
			}
			if at == compose.GuestDir {
				e.Err, e.Hint = fmt.Errorf("%s, which is reserved for Fumehood, is a link in the image", at), "use another image"
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

// checkGuest reads a file of the guest back from a container that mounts its volume and is not started yet. It does
// nothing if this process has already done so.
func (p *Provider) checkGuest(ctx context.Context, volume *guestVolumeOf, container, path string) error {
	p.mu.Lock()
	checked := volume.checked[path]
	p.mu.Unlock()
	if checked {
		return nil
	}
	_, err := image.Share(ctx, &p.guests, "check "+volume.name+path, func(ctx context.Context) (struct{}, error) {
		same, err := p.engine.HasFile(ctx, container, path, guestbin.MaxProgram, volume.guest.SHA256)
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

// guestTree returns a file system that holds only the guest, as a tar stream.
func guestTree(program []byte) io.Reader {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	dir := strings.TrimPrefix(compose.GuestDir, "/") + "/"
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(compose.SocketDir, "/") + "/", Mode: 0o755},
		// The file is executable but not readable. Its processes are therefore not traceable by others from their first
		// moment, even before they set that themselves: see ptrace(2).
		{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(compose.GuestProgram, "/"), Mode: 0o111, Size: int64(len(program))},
		// gVisor runs only files that the user may also read. An unreadable file would give no protection there. gVisor
		// protects the guest because a process can trace only its descendants.
		{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(compose.ReadableGuest, "/"), Mode: 0o755, Size: int64(len(program))},
	} {
		h.Format = tar.FormatPAX
		_ = tw.WriteHeader(&h) // to memory: it cannot fail
		if h.Typeflag == tar.TypeReg {
			_, _ = tw.Write(program)
		}
	}
	_ = tw.Close()
	return &b
}
