package kubernetes

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fumehood/fumehood"
)

// The guest's image has one file, which users other than root can execute but not read, for each architecture.
func TestPushGuestImage(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	pushed, err := PushGuestImage(t.Context(), host+"/guest:1")
	if err != nil || !strings.HasPrefix(pushed, host+"/guest@sha256:") {
		t.Fatalf("%q, %v", pushed, err)
	}
	ref, err := name.ParseReference(pushed)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range guestArchs {
		img, err := remote.Image(ref, remote.WithContext(t.Context()), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		checkGuestImage(t, img, arch)
	}
	if _, err := PushGuestImage(t.Context(), "NOT a name"); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("an invalid name: %v", err)
	}
	s.Close()
	if _, err := PushGuestImage(t.Context(), host+"/guest:2"); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("no registry: %v", err)
	}
}

func TestWriteGuestImage(t *testing.T) {
	var out bytes.Buffer
	if err := WriteGuestImage(t.Context(), "example.org/guest:1", "arm64", &out); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("example.org/guest:1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	checkGuestImage(t, img, "arm64")
}

func checkGuestImage(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil || config.Architecture != arch {
		t.Errorf("the configuration is %+v, %v", config, err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	r := tar.NewReader(content)
	head, err := r.Next()
	if err != nil || head.Name != "guest" || head.Mode != 0o711 || head.Size < 1<<20 {
		t.Errorf("the first file is %+v, %v", head, err)
	}
	if next, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("another file: %+v, %v", next, err)
	}
}
