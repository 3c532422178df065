package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/wire"
)

// unit is the container of a service.
type unit struct {
	p         *Provider
	w         *watching // has the Pod
	pod       string    // its name
	uid       types.UID
	container string   // its name
	args      []string // of each guest in it; see environment
	program   *box.Program
}

var (
	_ box.Unit    = (*unit)(nil)
	_ box.Relayer = (*unit)(nil)
)

// Attach connects to the guest that is the main process.
func (u *unit) Attach(ctx context.Context) (box.Conn, error) {
	return u.p.api.open(ctx, u.pod, u.container, nil)
}

// Exec starts a guest as a user. The container's own user starts it, so only root can become another one.
func (u *unit) Exec(ctx context.Context, user string) (box.Exec, error) {
	s, err := u.p.api.open(ctx, u.pod, u.container, slices.Concat([]string{guestPath, "serve"}, u.args, identity(user)))
	if err != nil {
		return nil, err
	}
	select {
	case <-s.first: // the guest greets
	case <-ctx.Done():
		_ = s.Close() // never an error
		return nil, context.Cause(ctx)
	}
	select {
	case <-s.ended:
	default:
		return s, nil
	}
	switch code, err := s.exit(); {
	case err != nil:
		return nil, err
	case code == wire.NoSuchUser:
		return nil, &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: fmt.Errorf("no user %s in the image", user)}
	case code == wire.NotRoot:
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the image's user is not root, and cannot become %s", user),
			Hint: "start the sandbox as the user root, and give each command its user",
		}
	}
	return s, nil
}

// Relay starts a relay to a resident guest.
func (u *unit) Relay(ctx context.Context, name string) (box.Exec, error) {
	s, err := u.p.api.open(ctx, u.pod, u.container, []string{guestPath, "relay", name})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// own returns the Pod if it is the unit's.
func (u *unit) own(pod *corev1.Pod) *corev1.Pod {
	if pod == nil || pod.UID != u.uid {
		return nil
	}
	return pod
}

// State returns what has happened to the container, and to the service's own program in it.
func (u *unit) State() box.State {
	now, _, _ := u.now()
	return now
}

// now returns the state too, and channels that are closed when the container's part changes, and the program's.
func (u *unit) now() (now box.State, changed, programChanged <-chan struct{}) {
	now, programChanged = u.program.Now()
	pod, changed := u.w.now(u.pod)
	pod = u.own(pod)
	now.Lives = runs(pod, u.container)
	if t := endOf(pod, u.container); t != nil {
		if !now.Died {
			now.Deaths++
		}
		now.Died, now.Exit = true, int(t.ExitCode)
		if t.Reason == "OOMKilled" {
			now.OOMs = 1
		}
	}
	return now, changed, programChanged
}

// Until waits until the state is as wanted.
func (u *unit) Until(ctx context.Context, wanted func(box.State) bool) (box.State, bool) {
	for {
		now, changed, programChanged := u.now()
		if wanted(now) {
			return now, true
		}
		select {
		case <-changed:
		case <-programChanged:
		case <-ctx.Done():
			now = u.State() // both may have happened
			return now, wanted(now)
		}
	}
}

// Death returns why the container is unavailable. It asks the API server, whose watch may be late.
func (u *unit) Death(ctx context.Context) box.Death {
	pod, err := u.p.api.get(context.WithoutCancel(ctx), u.pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != u.uid {
		return box.Death{Err: errGone()}
	}
	if err != nil {
		return box.Death{} // not known
	}
	return deathOf(pod, u.container)
}

// pullPatience is how long a start waits for the kubelet, which tries again when a registry has failed: after 10 and 20 s.
const pullPatience = 35 * time.Second

// awaitStart waits until the container runs.
func (u *unit) awaitStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, u.p.opts.Pending)
	defer cancel()
	var failed error          // of a registry
	var over <-chan time.Time // when the kubelet has tried again
	for {
		pod, changed := u.w.now(u.pod)
		ready, err := u.ready(ctx, pod)
		pull, _ := errors.AsType[*pullError](err)
		if ready || err != nil && pull == nil {
			return err
		}
		if pull != nil && over == nil {
			over = time.After(pullPatience)
		}
		failed = cmp.Or(err, failed)
		select {
		case <-changed:
		case <-over:
			return failed
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return context.Cause(ctx)
			}
			return cmp.Or(failed, error(&fumehood.Error{
				Class: fumehood.ErrLimit, Err: fmt.Errorf("the Pod does not run after %v, which is the limit: %s", u.p.opts.Pending, pendingReason(pod)),
				Hint: "add nodes, wait until other Pods have ended, or lower the sandbox's limits",
			}))
		}
	}
}

// ready reports whether the container runs, or why it will not. A pullError may pass.
func (u *unit) ready(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod = u.own(pod); pod == nil { // it was deleted, or the watch is late
		return false, u.Death(ctx).Err
	}
	if runs(pod, u.container) {
		return true, nil
	}
	if err := hindrance(pod); err != nil {
		return false, err
	}
	return false, deathOf(pod, u.container).Err
}

// Check describes the health check of the service's own program.
func (u *unit) Check() *box.Check { return u.program.Check() }

// Restarts reports whether the program is started again.
func (u *unit) Restarts(context.Context) bool { return u.program.Restarts() }

// Evidence returns the result of the last health check, and the end of the program's output.
func (u *unit) Evidence(_ context.Context, lines int) (check, log string) {
	return u.program.Evidence(lines)
}

// Addresses returns none: ports are reached by the loopback interface.
func (u *unit) Addresses(context.Context) ([]netip.Addr, error) { return nil, nil }

// Stop ends the container for good: the kubelet kills a Pod whose time is over. The Pod itself stays.
func (u *unit) Stop(ctx context.Context) error {
	if err := u.p.api.patch(ctx, u.pod, map[string]any{"spec": map[string]any{"activeDeadlineSeconds": 1}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if _, ok := u.Until(ctx, func(s box.State) bool { return s.Died }); !ok {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the kubelet has not ended the Pod after %v", stopWithin)}
	}
	return nil
}

// stopWithin bounds the wait for the kubelet, which looks every 10 s.
const stopWithin = 60 * time.Second

// Pause is an ErrUnsupported.
func (u *unit) Pause(context.Context) (paused bool, err error) {
	return false, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("the kubernetes provider cannot suspend processes")}
}

// Resume has nothing to do.
func (u *unit) Resume(context.Context) error { return nil }
