package engine

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

func archiveOf(t *testing.T, heads ...tar.Header) io.ReadCloser {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, head := range heads {
		if err := tw.WriteHeader(&head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(tw, strings.NewReader(strings.Repeat("x", 1<<20)), head.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return io.NopCloser(&b)
}

func TestSkipping(t *testing.T) {
	t.Parallel()
	r := newSkipping(archiveOf(t,
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o750},
		tar.Header{Name: "d/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		tar.Header{Name: "d/file", Typeflag: tar.TypeReg, Mode: 0o640, Size: 200_001},
		tar.Header{Name: "d/d/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "d/d/pipe", Typeflag: tar.TypeFifo},
		tar.Header{Name: "d/hard", Typeflag: tar.TypeLink, Linkname: "d/file"},
		tar.Header{Name: "d/link", Typeflag: tar.TypeSymlink, Linkname: "file"},
	))
	var got []string
	var last *tar.Header
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, tr); n != head.Size || err != nil || head.Name == "d/file" && (n != 200_001 || head.Mode != 0o640) {
			t.Errorf("%s: %d bytes, mode %o, %v", head.Name, n, head.Mode, err)
		}
		got, last = append(got, head.Name), head
	}
	if text := strings.Join(got, " "); text != "d/ d/file d/d/ d/hard d/link d/" {
		t.Errorf("the entries are %s", text)
	}
	files, count := archive.ReadSkipped(last)
	if count != 2 || len(files) != 2 || files[0] != (archive.SkippedFile{Path: "null", Kind: "device"}) || files[1] != (archive.SkippedFile{Path: "d/pipe", Kind: "pipe"}) {
		t.Errorf("it lists %v of %d", files, count)
	}
	for range 2 { // the error of the end stays
		if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d, %v", n, err)
		}
	}
}

func TestSkipping_errors(t *testing.T) {
	t.Parallel()
	_, err := io.ReadAll(newSkipping(archiveOf(t, tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})))
	if !errors.Is(err, fumehood.ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
	whole, err := io.ReadAll(archiveOf(t, tar.Header{Name: "file", Typeflag: tar.TypeReg, Size: 100_000}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(newSkipping(io.NopCloser(bytes.NewReader(whole[:50_000])))); !errors.Is(err, fumehood.ErrPermission) {
		t.Errorf("an archive that ends early: %v", err)
	}
	broken := io.MultiReader(bytes.NewReader(whole[:50_000]), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := io.ReadAll(newSkipping(io.NopCloser(broken))); !errors.Is(err, io.ErrUnexpectedEOF) || fumehood.ClassOf(err) != nil {
		t.Errorf("an archive that breaks off: %v", err)
	}
	if all, err := io.ReadAll(newSkipping(io.NopCloser(bytes.NewReader(whole)))); err != nil || len(all) < 100_000 {
		t.Errorf("a file: %d bytes, %v", len(all), err)
	}
}
