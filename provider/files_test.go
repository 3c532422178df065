package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fumehood/fumehood"
)

// stub is a backend whose fields define its files.
type stub struct {
	FileBackend
	users  []string // users passed to Files
	walk   iter.Seq2[fumehood.WalkEntry, error]
	opened io.Reader
	change error
}

func (b *stub) Info() fumehood.Info {
	return fumehood.Info{Services: []fumehood.ServiceInfo{{Name: "web", Dir: "/d", User: "own"}}}
}
func (b *stub) Service(string) ServiceBackend { return b }
func (b *stub) Close(context.Context) error   { return nil }

func (b *stub) Start(context.Context, fumehood.Cmd, bool, Sink) (ProcessBackend, error) {
	return nil, fumehood.ErrUnsupported
}

func (b *stub) Files(user string) FileBackend {
	b.users = append(b.users, user)
	return b
}

func (b *stub) Walk(context.Context, string, int) iter.Seq2[fumehood.WalkEntry, error] { return b.walk }

func (b *stub) Open(context.Context, string, int64, int64) (io.ReadCloser, fumehood.FileInfo, error) {
	return io.NopCloser(b.opened), fumehood.FileInfo{}, nil
}

func (b *stub) Change(context.Context, Change) error { return b.change }

// A list is kept in memory, and the sandbox determines its length.
func TestList_endless(t *testing.T) {
	name := strings.Repeat("n", 1<<20)
	n := 0
	b := &stub{walk: func(yield func(fumehood.WalkEntry, error) bool) {
		for yield(fumehood.WalkEntry{Path: name, FileInfo: fumehood.FileInfo{Name: name}}, nil) {
			n++
		}
	}}
	_, err := New(b, fumehood.Spec{}, nil).List(t.Context(), "x")
	var e *fumehood.Error
	if !errors.Is(err, fumehood.ErrTooLarge) || !errors.As(err, &e) || e.Hint == "" || e.Path != "x" {
		t.Errorf("got %v", err)
	}
	if n > fumehood.MaxReadFile>>20 {
		t.Errorf("%d MiB were read", n)
	}
}

func TestWalk_errorPaths(t *testing.T) {
	b := &stub{walk: func(yield func(fumehood.WalkEntry, error) bool) {
		_ = yield(fumehood.WalkEntry{Path: "."}, fumehood.ErrPermission) && yield(fumehood.WalkEntry{Path: "a/b"}, fumehood.ErrPermission) && yield(fumehood.WalkEntry{}, errors.New("lost"))
	}}
	var got []string
	for _, err := range New(b, fumehood.Spec{}, nil).Walk(t.Context(), "tree/") {
		var e *fumehood.Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		got = append(got, e.Path+" "+e.Class.Error())
	}
	if want := "tree/ permission denied, tree/a/b permission denied, tree/ infrastructure failure"; strings.Join(got, ", ") != want {
		t.Errorf("got %q", got)
	}
}

func TestOpen_readErrors(t *testing.T) {
	for want, err := range map[error]error{fumehood.ErrInfrastructure: errors.New("reset"), fumehood.ErrUnavailable: &fumehood.Error{Class: fumehood.ErrUnavailable}} {
		sb := New(&stub{opened: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(err))}, fumehood.Spec{}, nil)
		r, _, oerr := sb.Open(t.Context(), "x")
		if oerr != nil {
			t.Fatal(oerr)
		}
		got, err := io.ReadAll(r)
		var e *fumehood.Error
		if string(got) != "abc" || !errors.Is(err, want) || !errors.As(err, &e) || e.Path != "x" || e.Op != "read" {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := sb.ReadRange(t.Context(), "x", 0, 4); !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
	}
}

func TestRename_error(t *testing.T) {
	sb := New(&stub{change: &fumehood.Error{Class: fumehood.ErrExists, Hint: "remove it"}}, fumehood.Spec{}, nil)
	const want = "rename a in service web: to /d/b: already exists (remove it)"
	if err := sb.Rename(t.Context(), "a", "b"); !errors.Is(err, fumehood.ErrExists) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestService_As(t *testing.T) {
	b := &stub{}
	sb := New(b, fumehood.Spec{}, nil)
	bob := sb.As("bob")
	for _, s := range []fumehood.Service{sb, bob, bob.As(""), bob.As("eve")} {
		if err := s.Mkdir(t.Context(), "x", fumehood.MkdirOptions{}); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(b.users, ","); got != ",bob,,eve" {
		t.Errorf("the users were %q", got)
	}
	if got := bob.ServiceInfo().User + "," + bob.As("").ServiceInfo().User + "," + sb.ServiceInfo().User; got != "bob,own,own" {
		t.Errorf("the users in ServiceInfo are %q", got)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bob.Mkdir(t.Context(), "x", fumehood.MkdirOptions{}); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("after the close: %v", err)
	}
}

// TestReadAll_fewCopies checks that memory for content of the reported size grows only once.
func TestReadAll_fewCopies(t *testing.T) {
	content := make([]byte, 50<<20)
	r := bytes.NewReader(content)
	if n := testing.AllocsPerRun(2, func() {
		r.Reset(content)
		if data, err := readAll(r, r.Size()); len(data) != len(content) || err != nil {
			t.Errorf("got %d bytes, %v", len(data), err)
		}
	}); n > 2 {
		t.Errorf("it allocates %v times", n)
	}
}

func TestReadAll_wrongSize(t *testing.T) {
	for _, real := range []int{0, 1, 511, 512, 1 << 20, 1<<20 + 1, 3<<20 - 1, 5 << 20} {
		for _, size := range []int64{0, 1, int64(real), int64(real) + 1, 90 << 20} {
			content := bytes.Repeat([]byte("x"), real)
			data, err := readAll(iotest.HalfReader(bytes.NewReader(content)), size)
			if err != nil || !bytes.Equal(data, content) {
				t.Errorf("%d bytes, reported as %d: got %d bytes, %v", real, size, len(data), err)
			}
			if most := max(4*real, 1<<20); cap(data) > most+1 {
				t.Errorf("%d bytes, reported as %d, allocate %d", real, size, cap(data))
			}
		}
	}
	broken := errors.New("the disk is gone")
	if data, err := readAll(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), 10); string(data) != "abc" || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", data, err)
	}
}
