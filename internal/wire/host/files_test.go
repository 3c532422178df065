package host

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// line returns a walk's line about a file of mode 0644.
func line(p string) string {
	return fmt.Sprintf(`{"path":%q,"info":{"size":3,"mode":420,"mod_time":1,"uid":0,"gid":0}}`, base64.StdEncoding.EncodeToString([]byte(p))) + "\n"
}

func lines(paths ...string) string {
	var b strings.Builder
	for _, p := range paths {
		b.WriteString(line(p))
	}
	return b.String()
}

// walked walks a tree on a guest that sends text.
func walked(t *testing.T, depth int, text string) (paths []string, last error) {
	t.Helper()
	g, f := newFake(t)
	go func() {
		<-f.opened
		f.say(1, "{}")
		for chunk := range slices.Chunk([]byte(text), 50_000) {
			f.output(1, wire.Stdout, string(chunk))
		}
		f.send(1, wire.End, wire.Stdout)
	}()
	soon(t, func() {
		for e, err := range g.Walk(t.Context(), "/root/of/it", depth) {
			paths, last = append(paths, e.Path), err
		}
	})
	return paths, last
}

func TestWalk(t *testing.T) {
	want := []string{".", "...", "..c", "a", "a/b", "a/b/c", "a-b", "b", "b\n\xff"}
	got, err := walked(t, -1, lines(want...))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	failed := `{"path":"YQ==","info":{"size":0,"mode":2147484141,"mod_time":1,"uid":0,"gid":0},"failed":{"errno":13,"text":"no"}}` + "\n"
	got, err = walked(t, -1, line(".")+failed)
	if !errors.Is(err, fumehood.ErrPermission) || !slices.Equal(got, []string{".", "a"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWalk_invalid(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                        "",
		"no JSON":                      "hello\n",
		"an unfinished line":           line(".") + `{"path":`,
		"no root first":                line("a"),
		"the root twice":               lines(".", "."),
		"the parent":                   lines(".", ".."),
		"above":                        lines(".", "../a"),
		"above, in the middle":         lines(".", "a/../../b"),
		"an absolute path":             lines(".", "/etc/passwd"),
		"an empty path":                lines(".", ""),
		"a path that is not clean":     lines(".", "a//b"),
		"a path with a dot":            lines(".", "./a"),
		"a path with a final slash":    lines(".", "a/"),
		"a path with a NUL byte":       lines(".", "a\x00b"),
		"a repeated path":              lines(".", "a", "a"),
		"a path out of order":          lines(".", "b", "a"),
		"a directory too late":         lines(".", "a/b", "a"),
		"a path that is too deep":      lines(".", "a/b/c"),
		"an entry without information": line(".") + `{"path":"YQ=="}` + "\n",
		"a negative size":              line(".") + `{"path":"YQ==","info":{"size":-1,"mode":420}}` + "\n",
		"a directory with a size":      line(".") + `{"path":"YQ==","info":{"size":1,"mode":2147484141}}` + "\n",
		"a file with a link target":    line(".") + `{"path":"YQ==","info":{"mode":420,"link":"YQ=="}}` + "\n",
		"a negative owner":             line(".") + `{"path":"YQ==","info":{"mode":420,"uid":-1}}` + "\n",
		"a line beyond the limit":      line(".") + strings.Repeat(" ", wire.MaxWalkLine+1),
	} {
		paths, err := walked(t, 2, text)
		if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "broke the protocol") {
			t.Errorf("%s: got %q, %v", name, paths, err)
		}
		if n := len(paths); n == 0 || paths[n-1] != "" {
			t.Errorf("%s: the error came with %q", name, paths)
		}
	}
}

func TestWalk_interrupted(t *testing.T) {
	for _, text := range []string{lines(".", "a"), line(".") + `{"path":`} {
		g, f := newFake(t)
		go func() {
			<-f.opened
			f.say(1, "{}")
			f.output(1, wire.Stdout, text)
			_ = f.conn.Close()
		}()
		var last error
		soon(t, func() {
			for _, err := range g.Walk(t.Context(), "/x", -1) {
				last = err
			}
		})
		if !errors.Is(last, fumehood.ErrUnavailable) {
			t.Errorf("%q: got %v", text, last)
		}
	}
}

func TestWalk_break(t *testing.T) {
	g, f := newFake(t)
	go func() {
		<-f.opened
		f.say(1, "{}")
		f.output(1, wire.Stdout, lines(".", "a", "b"))
	}()
	soon(t, func() {
		for _, err := range g.Walk(t.Context(), "/x", -1) {
			if err != nil {
				t.Error(err)
			}
			break
		}
	})
	if err := g.Ready(t.Context()); err != nil { // the guest has read everything sent before
		t.Error(err)
	}
	if n := f.count(wire.Close); n != 1 {
		t.Errorf("%d closes sent", n)
	}
}

// A file's name comes from the requested path, not from the guest.
func TestStat_name(t *testing.T) {
	for p, want := range map[string]string{"/a/b": "b", "/a/b/": "b", "/": "/", "/a/.": "."} {
		g, f := newFake(t)
		go func() {
			<-f.opened
			f.say(1, `{"info":{"name":"Li4vZXZpbA==","size":3,"mode":420}}`)
		}()
		if info, err := g.Stat(t.Context(), p); err != nil || info.Name != want {
			t.Errorf("%s: got %+v, %v", p, info, err)
		}
	}
}

// FuzzFiles checks that each file operation ends, that its errors have a class, and that a walk only leads down,
// whatever a guest sends.
func FuzzFiles(f *testing.F) {
	say := func(text string) []byte { return frame(1, wire.Message, []byte(text)) }
	out := func(text string) []byte { return frame(1, wire.Data, append([]byte{wire.Stdout}, text...)) }
	end := frame(1, wire.End, []byte{wire.Stdout})
	described := `{"info":{"size":3,"mode":420,"mod_time":1}}`
	f.Add(said(say("{}"), out(lines(".", "a", "a/b", "c")), end), byte(0))
	f.Add(said(say("{}"), out(lines(".", "a", "../b")), end), byte(0))
	f.Add(said(say("{}"), out(lines(".", "a")), out(lines("b")), end), byte(1))
	f.Add(said(say("{}"), out(lines(".")), say(`{"failed":{"errno":5,"text":"x"}}`)), byte(1))
	f.Add(said(say(described)), byte(2))
	f.Add(said(say(described), out("abc"), end), byte(3))
	f.Add(said(say(`{"failed":{"errno":39,"text":"x"}}`)), byte(4))
	f.Add(said(say("{}"), say("{}")), byte(5))
	f.Add(said(say("{}"), out("abc"), end), byte(6))
	f.Add(said(say("{}"), out("\x00\x03abc\x00\x00\xff\xff"), end), byte(7))
	f.Fuzz(func(t *testing.T, in []byte, op byte) {
		b := &babble{
			greeting: bytes.NewReader(frame(0, wire.Hello, []byte{wire.Version})), rest: bytes.NewReader(in),
			asked: make(chan struct{}), closed: make(chan struct{}),
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			g := New(b)
			defer g.Close()
			if err := ask(t, g, op, len(in)); err != nil && fumehood.ClassOf(err) == nil {
				t.Errorf("error without a class: %v", err)
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the operation did not end")
		}
	})
}

// ask requests one operation from a guest that sends the given number of bytes.
func ask(t *testing.T, g *Guest, op byte, bytes int) (err error) {
	const name = "/root/of it"
	switch op % 8 {
	case 0, 1:
		var e fumehood.WalkEntry
		depth := int(op%8)*2 - 1
		for e, err = range g.Walk(t.Context(), name, depth) {
			if p := path.Join(name, e.Path); e.Path != "" && p != name && !strings.HasPrefix(p, name+"/") || strings.Contains(e.Name, "/") {
				t.Errorf("walk entry %q has name %q", e.Path, e.Name)
			}
		}
	case 2:
		_, err = g.Stat(t.Context(), name)
	case 3:
		var r io.ReadCloser
		if r, _, err = g.Open(t.Context(), name, 0, -1); err == nil {
			var got []byte
			if got, err = io.ReadAll(r); len(got) > bytes {
				t.Errorf("%d bytes sent, %d received", bytes, len(got))
			}
			r.Close()
		}
	case 4:
		err = g.Change(t.Context(), provider.Change{Op: provider.ChangeMkdir, Path: name})
	case 5:
		err = g.Write(t.Context(), name, strings.NewReader("abc"), 3, fumehood.WriteOptions{})
	case 6:
		var c *Conn
		if c, err = g.Dial(t.Context(), loopback, 80); err == nil {
			if got, _ := io.ReadAll(c); len(got) > bytes { // the reason of the end does not matter here
				t.Errorf("%d bytes sent, %d received", bytes, len(got))
			}
			c.Close()
		}
	case 7:
		var c *Talk
		if c, err = g.Talk(t.Context(), loopback, 53); err == nil {
			got := 0
			for { // the reason of the end does not matter here
				datagram, rerr := c.Receive()
				if rerr != nil {
					break
				}
				got += 2 + len(datagram)
			}
			if got > bytes {
				t.Errorf("%d bytes sent, %d received", bytes, got)
			}
			c.Close()
		}
	}
	return err
}

// A guest whose stream is closed in the middle of an archive reports a bad archive. The host may receive this before
// it notices why the stream was closed.
func TestUpload_canceled(t *testing.T) {
	g, f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.opened
		f.say(1, "{}")
	}()
	canceled := false
	tree := readerFunc(func(p []byte) (int, error) {
		if !canceled {
			canceled = true
			f.say(1, `{"failed":{"bad_content":true,"text":"bad archive: content incomplete"}}`)
			f.send(1, wire.Close)
			go func() {
				<-f.opened
				f.say(3, `{"info":{}}`)
			}()
			if _, err := g.Stat(t.Context(), "/"); err != nil { // its answer comes after the messages above
				t.Error(err)
			}
			cancel()
		}
		return len(p), nil
	})
	soon(t, func() {
		if err := g.Upload(ctx, "/", tree); !errors.Is(err, fumehood.ErrCanceled) {
			t.Errorf("got %v", err)
		}
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
