package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox.
type sandbox struct {
	box.Sandbox
	p    *Provider
	pod  *corev1.Pod // as it was created or found; nil before that
	own  *watching   // of a sandbox that another process has started; nil for the provider's
	unit *unit
}

var (
	_ box.Body         = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
)

// Prepare has nothing to do: the node pulls the image.
func (sb *sandbox) Prepare(context.Context) error { return nil }

// Admit waits for a place among the sandboxes that start, and those that exist.
func (sb *sandbox) Admit(ctx context.Context) (started, left func(), err error) {
	if err := sb.p.running.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	if err := sb.p.starting.Acquire(ctx, 1); err != nil {
		sb.p.running.Release(1)
		return nil, nil, err
	}
	return func() { sb.p.starting.Release(1) }, func() { sb.p.running.Release(1) }, nil
}

// Make creates the Pod, with its marks, and waits until its guest answers.
func (sb *sandbox) Make(ctx context.Context) (err error) {
	end := sb.Rec.Phase("create")
	marks := sb.Marks()
	marks[owner.LabelOwner] = sb.p.self.String()
	marks[owner.LabelLease] = time.Now().Add(sb.p.opts.Lease).UTC().Format(time.RFC3339)
	pod, err := sb.p.pod(sb.Spec, marks)
	if err == nil {
		sb.pod, err = sb.p.make(ctx, pod)
	}
	end(err)
	if err != nil {
		return err
	}
	sb.connect(sb.p.watching(ctx))
	end = sb.Rec.Phase("start")
	err = sb.StartServices(ctx, sb.p.opts.Logger)
	end(err)
	return err
}

// guestWithin bounds the first exchange with a guest.
const guestWithin = 60 * time.Second

// connect makes the service of the sandbox's container, whose guests this process may use from then on.
func (sb *sandbox) connect(w *watching) {
	w.record(sb.pod)
	sb.unit = &unit{p: sb.p, w: w, pod: sb.pod.Name, uid: sb.pod.UID, spec: sb.Spec}
	info := fumehood.ServiceInfo{Name: serviceName, Image: sb.pod.Spec.Containers[0].Image, Dir: sb.Spec.Dir, User: sb.Spec.User, Container: sb.pod.Name}
	s := &box.Service{Service: compose.Service{Name: serviceName, Serves: true}, Info: info, Units: []box.Unit{sb.unit}}
	_, s.Term = sb.Spec.Env["TERM"]
	s.Guests = box.NewGuests(box.GuestConfig{
		Unit: sb.unit, Sandbox: sb.Spec.Name, User: sb.Spec.User, Serves: true, Key: sb.Key, ID: string(sb.pod.UID), Within: guestWithin,
		Ran: &sb.Ran, Log: sb.p.opts.Logger.With("sandbox", sb.Spec.Name),
	})
	s.Forwards = box.NewPorts(s.Guests.Own, sb.p.opts.Logger)
	s.Launch = func(ctx context.Context) error {
		if err := sb.unit.awaitStart(ctx); err != nil {
			return err
		}
		if err := s.Guests.Attach(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, guestWithin, box.Slow(guestWithin))
		defer cancel()
		if err := s.Guests.Ready(ctx); err != nil {
			return err
		}
		// What the main process writes goes into the container's log on the node, so the rest goes by a relay.
		s.Guests.Main().Close()
		return sb.locate(ctx)
	}
	sb.Services = []*box.Service{s}
}

// locate asks the guest for the working directory, if the image determines it, and records that of a kept sandbox.
func (sb *sandbox) locate(ctx context.Context) (err error) {
	s := sb.Services[0]
	if s.Info.Dir != "" {
		_, err = s.Guests.Own(ctx)
		return err
	}
	if s.Info.Dir, err = s.Guests.Dir(ctx); err != nil || !sb.Spec.Keep {
		return err
	}
	return sb.p.api.patch(ctx, sb.pod.Name, map[string]any{"metadata": map[string]any{
		"uid": sb.pod.UID, "annotations": map[string]string{annotationDir: s.Info.Dir},
	}})
}

// Remove deletes the Pod.
func (sb *sandbox) Remove(ctx context.Context) error {
	sb.Disconnect()
	if sb.pod == nil {
		return nil
	}
	if err := sb.p.api.deletePod(ctx, sb.pod.Name, sb.pod.UID, atOnce); err != nil {
		return err
	}
	sb.p.watching(ctx).forget(sb.pod.Name)
	return nil
}

// Leave closes the connections to a kept sandbox.
func (sb *sandbox) Leave() {
	sb.Disconnect()
	if sb.own != nil {
		sb.own.end()
	}
}
