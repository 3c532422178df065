package box

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
)

// lister is a guest that lists detached commands, and records which of them it is asked to forget.
type lister struct {
	list []wire.Detached

	mu     sync.Mutex
	forgot []int
}

// guest returns a client that is connected to it.
func (l *lister) guest(t *testing.T) *host.Guest {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	hostEnd, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	guestEnd, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = wire.NewConn(guestEnd, wire.Guest, func(s *wire.Stream, request []byte) {
			r, err := wire.DecodeRequest(request)
			if err != nil {
				t.Error(err)
			}
			go l.answer(t, s, r)
		}).Serve()
	}()
	g := host.New(hostEnd)
	t.Cleanup(func() {
		g.Close()
		<-served
	})
	return g
}

func (l *lister) answer(t *testing.T, s *wire.Stream, r wire.Request) {
	defer s.Close()
	var err error
	if r.Forget != nil {
		l.mu.Lock()
		l.forgot = append(l.forgot, r.Forget.ID)
		l.mu.Unlock()
		err = s.SendMessage([]byte("{}"))
	} else {
		var text []byte
		if text, err = json.Marshal(l.list); err == nil {
			err = s.Send(wire.Stdout, text)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// The guest of another user may be gone when its listed command is looked for.
func TestGuests_joinGone(t *testing.T) {
	m := NewGuests(GuestConfig{Log: slog.New(slog.DiscardHandler), Key: []byte("key"), Unit: &fakeUnit{}})
	m.main = (&lister{}).guest(t)
	started := make(chan struct{})
	close(started)
	m.guests = map[role]*guest{{"a", true}: {err: errNobody, started: started, number: 1}}
	_, err := m.Join(t.Context(), provider.DetachedInfo{ID: 2, User: "a"}, nil)
	if !errors.Is(err, errNobody) || !errors.Is(fumehood.ClassOf(err), fumehood.ErrUnavailable) {
		t.Errorf("got %v, of class %v", err, fumehood.ClassOf(err))
	}
}

func TestGuests_ofOthers(t *testing.T) {
	command := func(id int) wire.Detached { return wire.Detached{ID: id, Args: [][]byte{[]byte("x")}} }
	reserved := func(id int, user string, age time.Duration) wire.Detached {
		return wire.Detached{ID: id, User: []byte(user), AgeUS: age.Microseconds()}
	}
	old := startTimeout + time.Minute
	own := &lister{list: []wire.Detached{
		command(1), reserved(2, "a", old), reserved(3, "b", 0), reserved(4, "a", old), reserved(5, "a", 0), reserved(6, "b", 0), command(7),
	}}
	ofA := &lister{list: []wire.Detached{command(1), command(2), command(3), reserved(5, "b", 0), command(8)}}
	ofB := &lister{list: []wire.Detached{command(6)}}
	m := NewGuests(GuestConfig{Log: slog.New(slog.DiscardHandler)})
	started := make(chan struct{})
	close(started)
	m.guests = map[role]*guest{{"a", true}: {Guest: ofA.guest(t), started: started}, {"b", true}: {Guest: ofB.guest(t), started: started}}

	g := own.guest(t)
	all, err := g.Detached(t.Context())
	if err == nil {
		all, err = m.ofOthers(t.Context(), g, all)
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []provider.DetachedInfo
	for _, info := range all {
		got = append(got, provider.DetachedInfo{ID: info.ID, User: info.User})
		if len(info.Args) != 1 {
			t.Errorf("number %d has arguments %q", info.ID, info.Args)
		}
	}
	want := []provider.DetachedInfo{{ID: 1}, {ID: 2, User: "a"}, {ID: 6, User: "b"}, {ID: 7}}
	if !slices.EqualFunc(got, want, func(a, b provider.DetachedInfo) bool { return a.ID == b.ID && a.User == b.User }) {
		t.Errorf("listed: %+v", got)
	}
	// Number 5 may still be starting. Number 4 was reserved long ago and does not exist.
	if !slices.Equal(own.forgot, []int{4}) || ofA.forgot != nil || ofB.forgot != nil {
		t.Errorf("forgotten: %d, of a %d, of b %d", own.forgot, ofA.forgot, ofB.forgot)
	}
}
