package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
)

// shared runs f once for all who ask for the same key at the same time. A caller whose ctx ends stops
// waiting; f goes on for the others, and its context ends only when nobody waits any more.
func shared[T any](ctx context.Context, group *flights, key string, f func(context.Context) (T, error)) (T, error) {
	var zero T
	ch, leave := group.join(ctx, key, func(ctx context.Context) (any, error) { return f(ctx) })
	defer leave()
	select {
	case <-ch.done:
		if ch.err != nil {
			return zero, ch.err
		}
		return ch.value.(T), nil
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// ensureImage makes sure that the daemon has the image. One that it has causes no request to a registry;
// many sandboxes of one that it has not cause one pull. One that ships with the library is built where it is not
// there as it should be.
func (p *Provider) ensureImage(ctx context.Context, ref string) (engine.Image, error) {
	if source, is := p.builtin(ref); is {
		built, err := p.prepare(ctx, []compose.Source{source}, &fumehood.Compose{})
		return built[source.Service].Image, err
	}
	image, found, err := p.engine.Image(ctx, ref)
	if err != nil || found {
		return image, err
	}
	return p.pull(ctx, ref, "", false)
}

// pull fetches an image, once for all who want it at the same time. What a busy or broken registry refuses is
// tried again. platform is as "linux/arm64"; empty means the daemon's. With always it is asked for even if it is
// there by now.
func (p *Provider) pull(ctx context.Context, ref, platform string, always bool) (engine.Image, error) {
	return shared(ctx, &p.pulls, fmt.Sprintf("%s %s %t", ref, platform, always), func(ctx context.Context) (engine.Image, error) {
		image, found, err := p.engine.Image(ctx, ref) // the pull before this one may have been of it
		if err != nil || found && !always && isFor(image, platform) {
			return image, err
		}
		auth, err := p.compose.Auth(ref)
		if err != nil {
			return engine.Image{}, err
		}
		err = p.patiently(ctx, func() error {
			return p.engine.Pull(ctx, ref, platform, auth, func(s engine.PullProgress) {
				p.opts.Progress(Progress{Image: s.Image, Layer: s.ID, Status: s.Status, Current: s.Current, Total: s.Total})
			})
		})
		if err != nil {
			return engine.Image{}, err
		}
		image, found, err = p.engine.Image(ctx, ref)
		if err == nil && !found {
			err = &fumehood.Error{Op: "pull image " + ref, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the daemon has pulled it and does not have it")}
		}
		return image, err
	})
}

// ensureGuest returns the name of a volume that holds the guest for an architecture.
//
// Volumes can neither be renamed nor labelled later, so that one which is being filled looks like one that
// is complete. So each attempt fills a volume of its own, and then gives the image that it was filled from
// its name: that image, whose label tells the volume, is the mark of a complete one, for all processes on
// all hosts that share the daemon. Of two that are filled at the same time, the one that finds itself
// outrun removes its own. Who makes one removes the old ones of other versions.
func (p *Provider) ensureGuest(ctx context.Context, arch string) (string, error) {
	p.mu.Lock()
	known := p.volumes[arch]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	volume, err := shared(ctx, &p.guests, arch, func(ctx context.Context) (string, error) { return p.findOrMakeGuest(ctx, arch) })
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	p.volumes[arch] = volume
	p.mu.Unlock()
	return volume, nil
}

// guestImageFor returns an image that holds the guest and nothing else.
func (p *Provider) guestImageFor(ctx context.Context, arch string) (string, error) {
	if _, err := p.ensureGuest(ctx, arch); err != nil {
		return "", err
	}
	guest, err := p.guestFor(ctx, arch, p.opts.Logger)
	return guestImage(guest.Version, arch), err
}

func guestImage(version, arch string) string { return "fumehood-guest:" + version + "-" + arch }

func (p *Provider) findOrMakeGuest(ctx context.Context, arch string) (string, error) {
	guest, err := p.guestFor(ctx, arch, p.opts.Logger)
	if err != nil {
		return "", err
	}
	mark := guestImage(guest.Version, arch)
	if volume, err := p.completeGuest(ctx, mark); err != nil || volume != "" {
		return volume, err
	}
	return p.makeGuest(context.WithoutCancel(ctx), guest, mark, arch)
}

// forgetGuest makes the next start look for the guest's volume again: somebody may have pruned it.
func (p *Provider) forgetGuest(arch string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.volumes, arch)
}

// completeGuest returns the volume that the mark tells of, and "" where there is none.
func (p *Provider) completeGuest(ctx context.Context, mark string) (string, error) {
	image, found, err := p.engine.Image(ctx, mark)
	if err != nil || !found {
		return "", err
	}
	volume := image.Labels[engine.LabelGuestVolume]
	there, err := p.engine.HasVolume(ctx, volume)
	if err != nil || !there {
		return "", err
	}
	return volume, nil
}

// guestTimeout bounds the making of a guest volume.
const guestTimeout = time.Minute

func (p *Provider) makeGuest(ctx context.Context, guest guestbin.Binary, mark, arch string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	volume := fmt.Sprintf(volumePrefix+"%s-%s-%s", guest.Version, arch, strings.ToLower(rand.Text()[:8]))
	labels := p.ownerLabels()
	labels[engine.LabelCache] = "guest"
	// The image has no owner's label: every container of it would inherit that.
	id, err := p.engine.Import(ctx, "", arch, guestTree(guest.Program), []string{
		fmt.Sprintf("ENTRYPOINT [%q]", compose.GuestProgram),
		fmt.Sprintf("LABEL %s=guest %s=%s %s=%q", engine.LabelCache, engine.LabelGuestVolume, volume, engine.LabelMaker, p.self),
	})
	if err != nil {
		return "", err
	}
	filler := p.ownerLabels()
	filler[engine.LabelSandbox] = volume
	if err := p.engine.FillVolume(ctx, volume, id, compose.GuestDir, labels, filler); err != nil {
		return "", err
	}
	if err := p.engine.Tag(ctx, id, mark); err != nil {
		return "", err
	}
	p.removeOldGuests(ctx)
	// Another process may have been faster. Ours stays then, for a third one may have read its name from the mark and be
	// about to use it. It is unfinished as far as a sweep sees, and goes when this process has ended.
	winner, err := p.completeGuest(ctx, mark)
	if err != nil || winner == "" {
		return volume, err
	}
	return winner, nil
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
	} {
		h.Format = tar.FormatPAX
		_ = tw.WriteHeader(&h) // into memory: it cannot fail
	}
	_, _ = tw.Write(program)
	_ = tw.Close()
	return &b
}
