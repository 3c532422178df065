package docker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
)

// delayed delays the given call, and returns a channel that is closed at the first such call.
func delayed(proxy *faultproxy.Proxy, call string) <-chan struct{} {
	begun := make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) })
	proxy.Decide(func(c string) faultproxy.Fault {
		if c != call {
			return faultproxy.None
		}
		first()
		return faultproxy.Delay
	})
	return begun
}

func TestProvider_Close_duringStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call   string
		cancel bool
		want   error
	}{
		"while it creates":           {call: "POST /containers/create", want: fumehood.ErrUnavailable},
		"while it creates, canceled": {call: "POST /containers/create", cancel: true, want: fumehood.ErrCanceled},
		"while its container starts": {call: "POST /containers/*/start", want: fumehood.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy := faulty(t, docker.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			warm(t) // then the start creates only the sandbox's own objects
			began := delayed(proxy, c.call)
			box := "closed-" + strings.ToLower(rand.Text()[:8])
			failed := make(chan error, 1)
			go func() {
				_, err := p.Start(ctx, fumehood.Spec{Name: box, Image: busybox})
				failed <- err
			}()
			<-began
			if c.cancel {
				cancel()
			}
			if err := p.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("close: %v", err)
			}
			select {
			case err := <-failed:
				if !errors.Is(err, c.want) {
					t.Errorf("start: %v, want %v", err, c.want)
				}
			case <-time.After(10 * time.Second):
				t.Error("the provider is closed, but the start continues")
			}
			if left := objectsOf(t, box); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
			if _, err := p.Start(t.Context(), fumehood.Spec{Image: busybox}); !errors.Is(err, fumehood.ErrUnavailable) {
				t.Errorf("a start afterwards: %v", err)
			}
		})
	}
}

func TestClose_userGuestStarting(t *testing.T) {
	t.Parallel()
	p, proxy := faulty(t, docker.Options{})
	sb := start(t, p, fumehood.Spec{Image: debian})
	began := delayed(proxy, "GET /exec/*/json") // asks whether the exec has started
	failed := make(chan error, 1)
	go func() {
		_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, User: "tester"})
		failed <- err
	}()
	<-began
	closed := make(chan error, 1)
	go func() { closed <- sb.Close(t.Context()) }()
	for name, c := range map[string]chan error{"the command": failed, "the close": closed} {
		select {
		case err := <-c:
			if name == "the close" && err != nil || name == "the command" && !errors.Is(err, fumehood.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s hangs", name)
		}
	}
}
