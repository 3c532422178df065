package kubernetes

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/registry"
)

// configs has what images say about the programs of services.
type configs struct {
	mu    sync.Mutex
	known map[string]*config // by reference
}

// config is what one image says.
type config struct {
	mu  sync.Mutex // held during a request
	got bool
	img compose.Image
}

const (
	// configWithin bounds a request to a registry.
	configWithin = 60 * time.Second
	// mostConfig is the largest configuration of an image, in bytes.
	mostConfig = 4 << 20
)

// get returns what an image says, according to its registry. It keeps answers as long as the provider exists.
func (c *configs) get(ctx context.Context, ref string) (img compose.Image, err error) {
	c.mu.Lock()
	if c.known == nil {
		c.known = map[string]*config{}
	}
	k := c.known[ref]
	if k == nil {
		k = &config{}
		c.known[ref] = k
	}
	c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.got {
		k.img, err = readConfig(ctx, ref)
		k.got = err == nil
	}
	return k.img, err
}

func readConfig(ctx context.Context, ref string) (img compose.Image, err error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return img, err
	}
	ctx, cancel := context.WithTimeout(ctx, configWithin)
	defer cancel()
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	found, err := remote.Image(r, append(registry.Access{MaxAnswer: mostConfig}.Options(), remote.WithContext(ctx), remote.WithPlatform(platform))...)
	if err != nil {
		return img, err
	}
	m, err := found.Manifest()
	if err != nil {
		return img, err
	}
	if m.Config.Size > mostConfig {
		return img, fmt.Errorf("its configuration has more than %d bytes", mostConfig)
	}
	file, err := found.ConfigFile()
	if err != nil {
		return img, err
	}
	img.Entrypoint, img.Command = file.Config.Entrypoint, file.Config.Cmd
	if h := file.Config.Healthcheck; h != nil {
		img.Health = compose.Health{Test: h.Test, StartPeriod: h.StartPeriod, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
	}
	return img, nil
}
