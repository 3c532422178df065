package score

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// archived returns a tar archive of entries, each "TYPE NAME": a regular file "f" of 3 bytes, a folder "d", links
// "l" and "h", a device "c", a pipe "p".
func archived(t testing.TB, entries ...string) []byte {
	t.Helper()
	types := map[string]byte{"f": tar.TypeReg, "d": tar.TypeDir, "l": tar.TypeSymlink, "h": tar.TypeLink, "c": tar.TypeChar, "p": tar.TypeFifo}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		kind, name, _ := strings.Cut(e, " ")
		head := &tar.Header{Typeflag: types[kind], Name: name, Mode: 0o6777, Uid: 7, Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}}
		if kind == "l" || kind == "h" {
			head.Linkname = "/etc/passwd"
		}
		if kind == "f" {
			head.Size = 3
		}
		if err := w.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if kind == "f" {
			if _, err := w.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repacked lists the entries of an archive after it was repacked as "to/x", with the missing folder "to".
func repacked(text []byte, left *room) ([]string, error) {
	var out bytes.Buffer
	if err := repack(&out, bytes.NewReader(text), "/", []string{"to"}, "to/x", left); err != nil {
		return nil, err
	}
	var names []string
	for r := tar.NewReader(&out); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the result is not an archive: %w", err)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != head.Size {
			return nil, fmt.Errorf("%s has %d bytes: %w", head.Name, n, err)
		}
		names = append(names, fmt.Sprintf("%s %o", head.Name, head.Mode))
		for key := range head.PAXRecords {
			if key != "path" && key != "size" {
				return nil, fmt.Errorf("%s has %s", head.Name, key)
			}
		}
		if head.Typeflag != tar.TypeReg && head.Typeflag != tar.TypeDir || head.Uid != 0 || head.Linkname != "" {
			return nil, fmt.Errorf("%s is %+v", head.Name, head)
		}
	}
}

func TestRepack(t *testing.T) {
	left := &room{100, 10}
	got, err := repacked(archived(t, "d a/", "d a/b/", "f a/b/c", "f a/d"), left)
	if want := "to/ 755, to/x/ 755, to/x/b/ 755, to/x/b/c 755, to/x/d 755"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("got %q, %v", got, err)
	}
	if *left != (room{94, 6}) {
		t.Errorf("remaining limit: got %+v", *left)
	}
	if got, err := repacked(archived(t, "f a"), left); err != nil || len(got) != 2 || got[1] != "to/x 755" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRepack_unfit(t *testing.T) {
	for name, c := range map[string]struct {
		text []byte
		says string
	}{
		"empty":                 {archived(t), "empty"},
		"a link":                {archived(t, "l a"), "is a link"},
		"a hard link":           {archived(t, "d a", "h a/b"), "is a link"},
		"a device":              {archived(t, "c a"), "neither a plain file"},
		"a pipe":                {archived(t, "d a", "p a/b"), "neither a plain file"},
		"a parent":              {archived(t, "d a", "f a/../../b"), "outside"},
		"beside":                {archived(t, "d a", "f b"), "outside"},
		"beside, with its name": {archived(t, "d a", "f ab"), "outside"},
		"absolute":              {archived(t, "f /etc/x"), "names"},
		"absolute, later":       {archived(t, "d a", "f /a/b"), "outside"},
		"the parent itself":     {archived(t, "d .."), "names"},
		"this folder":           {archived(t, "d ."), "names"},
		"deep":                  {archived(t, "f a/b"), "names"},
		"twice":                 {archived(t, "f a", "f a"), "twice"},
		"twice, otherwise":      {archived(t, "d a", "f a/b", "f a/./b"), "twice"},
		"below a file":          {archived(t, "f a", "f a/b"), "without the folder"},
		"without its folder":    {archived(t, "d a", "f a/b/c"), "without the folder"},
		"a long name":           {archived(t, "d a", "f a/"+strings.Repeat("x/", 3000)+"x"), "too long"},
		"too many":              {archived(t, "d a", "d a/1", "d a/2", "d a/3", "d a/4", "d a/5"), "more files"},
		"too much":              {archived(t, "d a", "f a/1", "f a/2", "f a/3", "f a/4"), "more bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := repacked(c.text, &room{10, 5})
			if !isUnfit(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestRepack_brokenOff(t *testing.T) {
	text := archived(t, "f a")
	for n := range 2 * len(text) {
		broken := errors.New("the connection broke")
		if n >= len(text) {
			n -= len(text)
			broken = &fumehood.Error{Class: fumehood.ErrPermission, Err: archive.ErrChanged}
		}
		var off *brokenOff
		err := repack(io.Discard, io.MultiReader(bytes.NewReader(text[:n]), iotest.ErrReader(broken)), "/", nil, "x", &room{10, 5})
		if ended := n >= len(text)-512; isUnfit(err) || !ended && (!errors.Is(err, broken) || !errors.As(err, &off)) {
			t.Fatalf("after %d of %d bytes: %v", n, len(text), err)
		}
	}
}

func TestSteadily(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	other := errors.New("no connection")
	for name, c := range map[string]struct {
		errs  []error // errors of the tries; the next try succeeds
		want  error
		unfit bool
	}{
		"at once":                     {nil, nil, false},
		"at last":                     {[]error{&brokenOff{io.ErrUnexpectedEOF}, &brokenOff{io.ErrUnexpectedEOF}}, nil, false},
		"never":                       {[]error{&brokenOff{io.ErrUnexpectedEOF}, &brokenOff{io.ErrUnexpectedEOF}, &brokenOff{io.ErrUnexpectedEOF}}, nil, true},
		"another failure":             {[]error{other}, other, false},
		"then the connection is gone": {[]error{&brokenOff{io.ErrUnexpectedEOF}, other}, other, false},
	} {
		err := steadily(ctx, func() error {
			if len(c.errs) == 0 {
				return nil
			}
			err := c.errs[0]
			c.errs = c.errs[1:]
			return err
		})
		if isUnfit(err) != c.unfit || !c.unfit && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cancel()
	if err := steadily(ctx, func() error { return &brokenOff{io.ErrUnexpectedEOF} }); !errors.Is(err, fumehood.ErrCanceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzRepack(f *testing.F) {
	for _, entries := range [][]string{{"f a"}, {"d a", "f a/b"}, {"d a", "l a/b"}, {"f a", "f a"}, {"d a", "f a/../../b"}, {"h a"}} {
		f.Add(archived(f, entries...))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		left := &room{1 << 16, 20}
		names, err := repacked(text, left)
		if err != nil {
			if strings.HasPrefix(err.Error(), "the result is not") || strings.HasPrefix(err.Error(), "to/") {
				t.Error(err)
			}
			return
		}
		if len(names) < 2 || len(names) > 21 || left.bytes < 0 {
			t.Errorf("%d entries, %+v", len(names), left)
		}
		seen := map[string]bool{}
		for _, n := range names[1:] {
			name := strings.TrimSuffix(n[:strings.LastIndexByte(n, ' ')], "/")
			if name != "to/x" && !strings.HasPrefix(name, "to/x/") || path.Clean(name) != name || seen[name] {
				t.Errorf("wrong name %q", name)
			}
			seen[name] = true
		}
	})
}

// A path that is short enough by itself must also be short enough below its new folder.
func TestRepack_longPath(t *testing.T) {
	entries := []string{"d a"}
	at := "a"
	for range 19 {
		at += "/" + strings.Repeat("x", 100)
		entries = append(entries, "d "+at)
	}
	for _, c := range []struct {
		last int // bytes of the last name
		fits bool
	}{{longest - 1 - len("/to/x/") - 19*101, true}, {longest - len("/to/x/") - 19*101, false}} {
		_, err := repacked(archived(t, append(slices.Clone(entries), "f "+at+"/"+strings.Repeat("y", c.last))...), &room{100, 100})
		if c.fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "too long a name") {
			t.Errorf("%d bytes at the end: got %v", c.last, err)
		}
	}
}
