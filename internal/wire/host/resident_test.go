package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

var secret = bytes.Repeat([]byte{7}, wire.SecretSize)

// meet connects a client to a fake resident guest that knows the secret peerSecret.
func meet(t *testing.T, peerSecret []byte) (*Guest, *fake, error) {
	t.Helper()
	hostEnd, conn := net.Pipe()
	proved := make(chan error, 1)
	go func() { proved <- wire.Prove(conn, wire.Guest, peerSecret) }()
	g, err := Meet(t.Context(), hostEnd, secret)
	if err != nil {
		_ = hostEnd.Close()
		_ = conn.Close()
		return nil, nil, errors.Join(err, <-proved)
	}
	if err := <-proved; err != nil {
		t.Fatal(err)
	}
	f := fakeOn(t, conn)
	t.Cleanup(g.Close)
	return g, f, nil
}

func newResident(t *testing.T) (*Guest, *fake) {
	t.Helper()
	g, f, err := meet(t, secret)
	if err != nil {
		t.Fatal(err)
	}
	return g, f
}

func TestMeet(t *testing.T) {
	newResident(t)
	soon(t, func() {
		hostEnd, guestEnd := net.Pipe()
		go func() { // does not know the secret, and sends arbitrary bytes
			_, _ = guestEnd.Write(make([]byte, 32))
			_, _ = io.ReadFull(guestEnd, make([]byte, 64))
			_, _ = guestEnd.Write(make([]byte, 32))
		}()
		if _, err := Meet(t.Context(), hostEnd, secret); !errors.Is(err, fumehood.ErrUnavailable) || !errors.Is(err, wire.ErrStranger) {
			t.Errorf("wrong secret: %v", err)
		}
	})
	soon(t, func() {
		hostEnd, guestEnd := net.Pipe()
		_ = guestEnd.Close()
		if _, err := Meet(t.Context(), hostEnd, secret); !errors.Is(err, fumehood.ErrUnavailable) || !errors.Is(err, io.EOF) {
			t.Errorf("no guest: %v", err)
		}
	})
	soon(t, func() {
		hostEnd, _ := net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := Meet(ctx, hostEnd, secret); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("silent guest: %v", err)
		}
	})
}

func TestDetach_needsResident(t *testing.T) {
	g, f := newFake(t)
	if _, err := g.Detach(t.Context(), command, 0, nil); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if n := f.count(wire.Open); n != 0 {
		t.Errorf("%d requests", n)
	}
	for answer, want := range map[string]error{`{}`: nil, `{"taken":true,"failed":"in use"}`: ErrTaken, `{"failed":"no"}`: fumehood.ErrInfrastructure, `[]`: fumehood.ErrInfrastructure} {
		g, f := newFake(t)
		soon(t, func() {
			asked := make(chan wire.Request, 1)
			go func() {
				asked <- <-f.opened
				f.say(1, answer)
			}()
			if err := g.Reside(t.Context(), "name", secret, 0); !errors.Is(err, want) {
				t.Errorf("%s: %v", answer, err)
			}
			if r := (<-asked).Reside; r == nil || r.Name != "name" || !bytes.Equal(r.Secret, secret) {
				t.Errorf("asked for %+v", r)
			}
		})
	}
}

// detach starts a detached command on a guest that only reports the start.
func detach(t *testing.T, g *Guest, f *fake, out provider.Sink) *Detached {
	t.Helper()
	go func() {
		<-f.opened
		f.say(1, reply(wire.Reply{Started: &wire.Started{ID: 5}}))
	}()
	d, err := g.Detach(t.Context(), command, 0, out)
	if err != nil {
		t.Fatal(err)
	}
	if d.ID() != 5 {
		t.Fatalf("number %d", d.ID())
	}
	return d
}

func offset(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// end waits for a detached command. The guest runs script once the output is requested.
func end(t *testing.T, f *fake, d *Detached, script func()) (exit provider.Exit, err error) {
	t.Helper()
	soon(t, func() {
		go func() {
			for !(<-f.orders).Follow {
			}
			script()
		}()
		exit, err = d.Wait(t.Context())
	})
	return exit, err
}

func TestDetached_Wait(t *testing.T) {
	g, f := newResident(t)
	out := &sink{}
	d := detach(t, g, f, out.take)
	var skipped [3]int64
	d.OnGap(func(s fumehood.Stream, n int64) { skipped[s] += n })
	exit, err := end(t, f, d, func() {
		f.output(1, wire.Stdout, "12345")
		f.output(1, wire.StdoutAt, offset(105))
		f.output(1, wire.Stdout, strings.Repeat("x", 20)) // more than the command's output cap
		f.output(1, wire.StderrAt, offset(7))
		f.say(1, exit(wire.Exit{Code: 3, Totals: [2]int64{125, 7}, WallUS: 1500}))
	})
	if err != nil || exit.Code != 3 || exit.Duration != 1500*time.Microsecond || *exit.Totals != [2]int64{125, 7} {
		t.Errorf("got %+v, %v", exit, err)
	}
	if out.out[1].Len() != 25 || skipped != [3]int64{0, 100, 7} {
		t.Errorf("got %q, skipped %v", &out.out[1], skipped)
	}
}

func TestDetached_splitOffset(t *testing.T) {
	g, f := newResident(t)
	out := &sink{}
	d := detach(t, g, f, out.take)
	var skipped [3]int64
	d.OnGap(func(s fumehood.Stream, n int64) { skipped[s] += n })
	_, err := end(t, f, d, func() {
		f.output(1, wire.StdoutAt, offset(1000)[:3]) // as much as there was credit for
		f.output(1, wire.Stderr, "err")
		f.output(1, wire.StdoutAt, offset(1000)[3:])
		f.output(1, wire.Stdout, "out")
		f.say(1, exit(wire.Exit{Totals: [2]int64{1003, 3}}))
	})
	if err != nil || out.out[1].String() != "out" || out.out[2].String() != "err" || skipped != [3]int64{0, 1000, 0} {
		t.Errorf("got %q and %q, skipped %v: %v", &out.out[1], &out.out[2], skipped, err)
	}
}

func TestDetach_canceledStart(t *testing.T) {
	g, f := newResident(t)
	for name, ask := range map[string]func(ctx context.Context) error{
		"started": func(ctx context.Context) error { _, err := g.Detach(ctx, command, 0, nil); return err },
		"joined": func(ctx context.Context) error {
			_, err := g.Join(ctx, provider.DetachedInfo{ID: 1}, nil)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		closed := f.count(wire.Close)
		go func() {
			<-f.opened // the guest does not answer
			cancel()
		}()
		soon(t, func() {
			if err := ask(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			for f.count(wire.Close) == closed {
				runtime.Gosched()
			}
		})
		select {
		case o := <-f.orders:
			if name != "started" || !o.Kill {
				t.Errorf("%s: the order %+v", name, o)
			}
		default:
			if name == "started" {
				t.Error("the command was not killed")
			}
		}
	}
}

func TestDetached_protocolErrors(t *testing.T) {
	for name, script := range map[string]func(f *fake){
		"an offset that is too long": func(f *fake) { f.output(1, wire.StdoutAt, "123456789") },
		"an incomplete offset":       func(f *fake) { f.output(1, wire.StdoutAt, "1234567"); f.output(1, wire.Stdout, "1") },
		"an offset that goes back":   func(f *fake) { f.output(1, wire.Stdout, "12345"); f.output(1, wire.StdoutAt, offset(4)) },
		"offset 0":                   func(f *fake) { f.output(1, wire.StdoutAt, offset(0)) },
		"a negative offset":          func(f *fake) { f.output(1, wire.StdoutAt, offset(1<<63)) },
		"a total beyond the output":  func(f *fake) { f.output(1, wire.Stdout, "1"); f.say(1, exit(wire.Exit{Totals: [2]int64{2, 0}})) },
		"a total below the offset": func(f *fake) {
			f.output(1, wire.StdoutAt, offset(9))
			f.say(1, exit(wire.Exit{Totals: [2]int64{8, 0}}))
		},
		"a negative time":              func(f *fake) { f.say(1, exit(wire.Exit{WallUS: -1})) },
		"output on an unknown channel": func(f *fake) { f.output(1, 5, "x") },
		"a second start, no exit":      func(f *fake) { f.say(1, reply(wire.Reply{Started: &wire.Started{ID: 5}})) },
	} {
		t.Run(name, func(t *testing.T) {
			g, f := newResident(t)
			d := detach(t, g, f, (&sink{}).take)
			if _, err := end(t, f, d, func() { script(f) }); !errors.Is(err, fumehood.ErrInfrastructure) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("output before Follow", func(t *testing.T) {
		g, f := newResident(t)
		d := detach(t, g, f, (&sink{}).take)
		f.output(1, wire.Stdout, "x")
		soon(t, func() { <-d.ended })
		if _, err := d.Wait(t.Context()); !errors.Is(err, fumehood.ErrInfrastructure) {
			t.Errorf("got %v", err)
		}
	})
	for name, reply := range map[string]string{"no number": started, "a number below 1": reply(wire.Reply{Started: &wire.Started{ID: -1}})} {
		t.Run(name, func(t *testing.T) {
			g, f := newResident(t)
			go func() {
				<-f.opened
				f.say(1, reply)
			}()
			if _, err := g.Detach(t.Context(), command, 0, nil); !errors.Is(err, fumehood.ErrInfrastructure) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("a number without Detach", func(t *testing.T) {
		g, f := newFake(t)
		_, _, err := run(t, g, f, command, false, func(s uint32) { f.say(s, reply(wire.Reply{Started: &wire.Started{ID: 1}})) })
		if !errors.Is(err, fumehood.ErrInfrastructure) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDetached_ordersBeforeWait(t *testing.T) {
	g, f := newResident(t)
	d := detach(t, g, f, (&sink{}).take)
	if err := d.Signal(t.Context(), 15); err != nil {
		t.Error(err)
	}
	if err := d.Resize(t.Context(), 3, 4); err != nil {
		t.Error(err)
	}
	if o := <-f.orders; o.Signal != 15 {
		t.Errorf("%+v", o)
	}
	if o := <-f.orders; o.Resize == nil || o.Resize.Cols != 4 {
		t.Errorf("%+v", o)
	}
}

func TestDetached_connectionEnds(t *testing.T) {
	g, f := newResident(t)
	d := detach(t, g, f, (&sink{}).take)
	exit, err := end(t, f, d, func() { _ = f.conn.Close() })
	if err != nil || exit.Outcome != fumehood.Lost || !strings.Contains(exit.Reason, "may run on") {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestDetached_timedOut(t *testing.T) {
	g, f := newResident(t)
	d := detach(t, g, f, (&sink{}).take)
	got, err := end(t, f, d, func() { f.say(1, exit(wire.Exit{Code: 137, Signal: 9, TimedOut: true})) })
	if err != nil || got.Outcome != fumehood.TimedOut || got.Code != -1 || got.Signal != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestForget_duringDelivery(t *testing.T) {
	g, f := newResident(t)
	out := &sink{}
	d := detach(t, g, f, out.take)
	got, err := end(t, f, d, func() {
		f.output(1, wire.Stdout, "some")
		go func() {
			<-f.opened
			f.say(3, `{}`)
		}()
		if err := d.Forget(t.Context()); err != nil {
			t.Error(err)
		}
		f.output(1, wire.Stdout, "more")
		f.say(1, exit(wire.Exit{Totals: [2]int64{8, 0}}))
	})
	if err != nil || got.Outcome != fumehood.Exited || out.out[1].String() != "somemore" {
		t.Errorf("got %+v, %q, %v", got, &out.out[1], err)
	}
}

func TestForget(t *testing.T) {
	for answer, class := range map[string]error{`{}`: nil, `{"running":true}`: fumehood.ErrConfig, `no`: fumehood.ErrInfrastructure} {
		g, f := newResident(t)
		d := detach(t, g, f, (&sink{}).take)
		soon(t, func() {
			asked := make(chan wire.Request, 1)
			go func() {
				asked <- <-f.opened
				f.say(3, answer)
			}()
			if err := d.Forget(t.Context()); !errors.Is(err, class) {
				t.Errorf("%s: %v", answer, err)
			}
			if r := (<-asked).Forget; r == nil || r.ID != 5 {
				t.Errorf("asked for %+v", r)
			}
		})
	}
}

// list makes a guest answer a List.
func list(t *testing.T, answer func(f *fake)) (all []provider.DetachedInfo, err error) {
	t.Helper()
	g, f := newResident(t)
	soon(t, func() {
		go func() {
			if r := <-f.opened; r.List == nil {
				t.Errorf("asked for %+v", r)
			}
			answer(f)
		}()
		all, err = g.Detached(t.Context())
	})
	return all, err
}

func TestDetached_list(t *testing.T) {
	text := `[{"id":2,"args":["eA==","eQ=="],"age_us":5000000},{"id":9,"args":["eg=="],"age_us":0,"ended":true,"stdin":true}]`
	all, err := list(t, func(f *fake) {
		f.output(1, wire.Stdout, text[:20])
		f.output(1, wire.Stdout, text[20:])
		f.send(1, wire.Close)
	})
	if err != nil || len(all) != 2 || all[0].ID != 2 || !slices.Equal(all[0].Args, []string{"x", "y"}) || !all[1].Ended || !all[1].Stdin {
		t.Fatalf("got %+v, %v", all, err)
	}
	if age := time.Since(all[0].Started); age < 5*time.Second || age > time.Minute {
		t.Errorf("%v old", age)
	}
}

func TestDetached_invalidList(t *testing.T) {
	entry := func(id int) string { return fmt.Sprintf(`{"id":%d,"args":["eA=="]}`, id) }
	var many []string
	for i := range wire.MaxDetached + 1 {
		many = append(many, entry(i+1))
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "x", "an object": "{}", "twice the same": "[" + entry(1) + "," + entry(1) + "]",
		"number 0": "[" + entry(0) + "]", "no arguments": `[{"id":1}]`, "from the future": `[{"id":1,"args":["eA=="],"age_us":-1}]`,
		"too old for a time.Time": `[{"id":1,"args":["eA=="],"age_us":9223372036854775807}]`,
		"too many":                "[" + strings.Join(many, ",") + "]",
	} {
		_, err := list(t, func(f *fake) {
			if text != "" {
				f.output(1, wire.Stdout, text)
			}
			f.send(1, wire.Close)
		})
		if !errors.Is(err, fumehood.ErrInfrastructure) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := list(t, func(f *fake) { f.say(1, "[]") }); !errors.Is(err, fumehood.ErrInfrastructure) {
		t.Errorf("a message: %v", err)
	}
	if _, err := list(t, func(f *fake) { _ = f.conn.Close() }); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("the end of the connection: %v", err)
	}
	if _, err := list(t, func(f *fake) { // an endless list
		for range 1 + wire.MaxList/60_000 {
			f.output(1, wire.Stdout, strings.Repeat(" ", 60_000))
		}
	}); !errors.Is(err, fumehood.ErrInfrastructure) {
		t.Errorf("endless list: %v", err)
	}
}

func TestReserve(t *testing.T) {
	for answered, want := range map[string]error{
		`{"id":8}`: nil,
		`{"id":7}`: fumehood.ErrInfrastructure, // must be above 7
		`{}`:       fumehood.ErrInfrastructure,
		`{"failed":{"what":"room","text":"full"}}`: fumehood.ErrLimit,
		`[]`: fumehood.ErrInfrastructure,
	} {
		g, f := newFake(t)
		soon(t, func() {
			asked := make(chan wire.Request, 1)
			go func() {
				asked <- <-f.opened
				f.say(1, answered)
			}()
			if id, err := g.Reserve(t.Context(), "nobody", 7); !errors.Is(err, want) || err == nil && id != 8 {
				t.Errorf("%s: %d, %v", answered, id, err)
			}
			if r := (<-asked).Reserve; r == nil || string(r.User) != "nobody" || r.Above != 7 {
				t.Errorf("asked for %+v", r)
			}
		})
	}
}

// FuzzList checks that every list that is accepted is valid.
func FuzzList(f *testing.F) {
	f.Add([]byte(`[{"id":2,"args":["eA=="],"age_us":5}]`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`[{"id":1,"user":"bm9ib2R5","args":null,"age_us":5},{"id":2,"user":"eA==","args":["eA=="],"age_us":5}]`))
	f.Add([]byte(`[{"id":1000,"args":[null],"age_us":9223372036854775807}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		now := time.Now()
		all, err := decodeList(text, now)
		if err != nil {
			if fumehood.ClassOf(err) == nil {
				t.Errorf("error without a class: %v", err)
			}
			return
		}
		if !json.Valid(text) || len(all) > wire.MaxDetached {
			t.Errorf("%d commands", len(all))
		}
		for i, d := range all {
			if d.ID < 1 || i > 0 && d.ID <= all[i-1].ID || d.Started.After(now) || (len(d.Args) == 0) != (d.User != "") {
				t.Errorf("%+v", d)
			}
		}
	})
}
