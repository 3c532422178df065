package box

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// Driver makes the sandboxes of one provider, and finds those that were kept.
type Driver interface {
	// Name returns the provider's name.
	Name() string
	// Plan returns the sandbox of a valid spec with a name, with the Spec, and the Key if it is to be kept. Nothing of it
	// exists yet. It rejects a spec that cannot be started.
	Plan(ctx context.Context, spec fumehood.Spec) (Body, error)
	// Find returns kept sandboxes, sorted by name: all, or that of one name if it exists. The name may be any text. With
	// expiries, renewed ones count; without, they may, if that costs nothing.
	Find(ctx context.Context, name string, expiries bool) ([]Found, error)
}

// Found is a kept sandbox that a driver has found. It may run or not.
type Found struct {
	provider.KeptSandbox
	// Programs reports, for each of Info.Services, whether its main process is the service's own program.
	Programs []bool
	// Open connects to the sandbox. Its default service must run. The Body has Services, Spec.Name, About and Key.
	Open func(ctx context.Context) (Body, error)
	// Logs sends the output of a service's own program to out. It may be nil if no service has one.
	Logs func(ctx context.Context, service int, opts provider.LogOptions, out provider.Sink) error
	// Extend records a later expiry, of a sandbox that expires.
	Extend func(ctx context.Context, until time.Time) error
}

// Life is the life of a provider's sandboxes. Driver and Log are required.
type Life struct {
	Driver Driver
	// Open are the sandboxes that the provider starts or has open.
	Open Set
	Presence
	// Alone reports whether a name may be open only once.
	Alone bool
	// KeptLater reports whether a sandbox becomes a kept one only when its start is complete. Otherwise it needs no
	// reaper from its first object on.
	KeptLater bool

	logged sync.Map // what LogFiles has logged, by logger, key or variable, and place
}

// NewKey returns the secret of a kept sandbox's guests.
func NewKey() []byte {
	key := make([]byte, wire.SecretSize)
	_, _ = rand.Read(key) // it never fails
	return key
}

// Start starts a sandbox.
func (l *Life) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	spec.Name = provider.NameOf(spec)
	rec := provider.NewRecorder(&spec)
	sb, err := l.start(ctx, spec, rec)
	if err != nil {
		return nil, rec.StartError(MaskError(spec.Compose, err))
	}
	return sb, nil
}

// start is Start for a spec with a name.
func (l *Life) start(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (fumehood.Sandbox, error) {
	op := "start sandbox " + spec.Name
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	body, err := l.Driver.Plan(ctx, spec)
	if known, ok := errors.AsType[*fumehood.Error](err); ok && known.Op != "" && ctx.Err() == nil { // it names what is wrong with the spec
		return nil, err
	}
	if err != nil {
		return nil, Within(ctx, op, err)
	}
	ctx, place, err := l.Open.Begin(ctx, l.placeName(spec.Name))
	if err != nil {
		return nil, err
	}
	defer place.Settle()
	sb := l.adopt(body, place)
	sb.Rec = rec
	end := rec.Phase("images")
	err = body.Prepare(ctx)
	end(err)
	if err != nil {
		return nil, Within(ctx, op, err)
	}
	started, left, err := body.Admit(ctx)
	if err != nil {
		return nil, Within(ctx, op, err)
	}
	sb.left = left
	if spec.TTL > 0 {
		sb.Expires = time.Now().Add(spec.TTL)
	}
	place.Hold(sb.Close)
	l.Attend(ctx, spec.Keep && !l.KeptLater)
	err = body.Make(ctx)
	if started != nil {
		started()
	}
	if err != nil {
		end := rec.Phase("close")
		trouble := sb.Close(ctx)
		end(trouble)
		return nil, Within(ctx, op, err, trouble)
	}
	sb.kept.Store(spec.Keep)
	made := provider.New(body, sb.Spec, rec)
	place.Hold(made.Close)
	return made, nil
}

// placeName returns the name by which a sandbox is compared with those that are open; empty for none.
func (l *Life) placeName(name string) string {
	if l.Alone {
		return name
	}
	return ""
}

func (l *Life) adopt(body Body, place *Place) *Sandbox {
	sb := body.Base()
	sb.provider, sb.body, sb.place = l.Driver.Name(), body, place
	return sb
}

// Within adds an operation to err. If ctx has ended, the class is ErrCanceled, or ErrUnavailable if the provider was
// closed. trouble is errors of the cleanup, which are appended.
func Within(ctx context.Context, op string, err error, trouble ...error) error {
	e := fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	known, _ := errors.AsType[*fumehood.Error](err)
	switch same, ok := err.(*fumehood.Error); { //nolint:errorlint // the outermost one
	case IsClosed(ctx):
		e.Class, e.Err = fumehood.ErrUnavailable, context.Cause(ctx)
	case ctx.Err() != nil:
		e.Class, e.Err = fumehood.ErrCanceled, fumehood.Cause(ctx)
	case ok && strings.Contains(same.Op, " ") && strings.HasPrefix(op+" ", same.Op+" "): // it names the same operation
		e = *same
	case known != nil:
		e.Class = fumehood.ClassOf(err)
	}
	e.Op = op
	if t := errors.Join(trouble...); t != nil {
		e.Err = fmt.Errorf("%w\nand then: %s", e.Err, t.Error())
	}
	return &e
}

// OpenKept connects to a kept sandbox, which this or another process has started.
func (l *Life) OpenKept(ctx context.Context, name string) (fumehood.Sandbox, error) {
	op := "open sandbox " + name
	found, err := l.find(ctx, op, name, false)
	if err != nil {
		return nil, err
	}
	ctx, place, err := l.Open.Begin(ctx, l.placeName(name))
	if refused, ok := errors.AsType[*fumehood.Error](err); ok {
		return nil, &fumehood.Error{Op: op, Class: refused.Class, Err: refused.Err}
	}
	defer place.Settle()
	body, err := found.Open(ctx)
	if err != nil {
		return nil, Within(ctx, op, err)
	}
	sb := l.adopt(body, place)
	sb.kept.Store(true)
	sb.Ran.Store(true)
	made := provider.New(body, fumehood.Spec{Name: name}, nil)
	place.Hold(made.Close)
	return made, nil
}

// find returns the kept sandbox of a name. With expiry, a renewed one counts.
func (l *Life) find(ctx context.Context, op, name string, expiry bool) (Found, error) {
	var found []Found
	if name != "" { // it would find all
		var err error
		if found, err = l.Driver.Find(ctx, name, expiry); err != nil {
			return Found{}, Within(ctx, op, err)
		}
	}
	if len(found) == 0 {
		return Found{}, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no sandbox named %q", name), Hint: "`fumehood ps` lists the named sandboxes"}
	}
	return found[0], nil
}

// Kept lists the kept sandboxes by name: all, or those of the given names that exist.
func (l *Life) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	only := ""
	if len(names) == 1 { // what the others run in may not answer
		only = names[0]
	}
	found, err := l.Driver.Find(ctx, only, true)
	if err != nil {
		return nil, Within(ctx, "list sandboxes", err)
	}
	var all []provider.KeptSandbox
	for _, f := range found {
		if len(names) == 0 || slices.Contains(names, f.Name) {
			all = append(all, f.KeptSandbox)
		}
	}
	return all, nil
}

// Renew sets the expiry of a kept sandbox to ttl from now, and returns the expiry. It never makes it earlier.
func (l *Life) Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error) {
	op := "renew sandbox " + name
	found, err := l.find(ctx, op, name, true)
	if err != nil {
		return time.Time{}, err
	}
	until := time.Now().Add(ttl).UTC().Truncate(time.Second)
	if found.Expires.IsZero() || !until.After(found.Expires) {
		return found.Expires, nil
	}
	if err := found.Extend(ctx, until); err != nil {
		return time.Time{}, Within(ctx, op, err)
	}
	return until, nil
}

// Logs sends the output of a service's own program to out.
func (l *Life) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	op := "read logs of " + name
	found, err := l.find(ctx, op, name, false)
	if err != nil {
		return err
	}
	i := 0
	if service != "" {
		i = slices.IndexFunc(found.Services, func(s fumehood.ServiceInfo) bool { return s.Name == service })
	}
	switch {
	case i < 0:
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("no service %q in %s", service, name), Hint: "`fumehood ps` lists the services"}
	case !found.Programs[i]:
		return &fumehood.Error{
			Op: op, Service: found.Services[i].Name, Class: fumehood.ErrUnsupported, Err: errors.New("its main process is Fumehood's own, which only waits for commands"),
			Hint: "`fumehood process` shows the output of detached commands",
		}
	}
	if err := found.Logs(ctx, i, opts, out); err != nil {
		return Within(ctx, op, err)
	}
	return nil
}
