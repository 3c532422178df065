// Package engine calls a Docker Engine. It is the only package that imports the Engine's client and inspects the text
// of its errors. All errors that it returns have a class of package fumehood.
package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sync/singleflight"

	"github.com/fumehood/fumehood"
)

// Client is a connection to one Engine. Its methods may be called concurrently.
type Client struct {
	api      client.APIClient
	endpoint string
	speedup  Speedup
	secret   Secret

	asking singleflight.Group
	server atomic.Pointer[Server] // nil until it was asked for
}

// New wraps the Engine's client. endpoint is the name of the Engine in errors. secret is the key of the seals.
func New(api client.APIClient, endpoint string, speedup Speedup, secret Secret) *Client {
	return &Client{api: api, endpoint: endpoint, speedup: speedup, secret: secret}
}

// Endpoint returns the address of the Engine, for messages.
func (c *Client) Endpoint() string { return c.endpoint }

// Local reports whether the Engine is reached over a socket of this machine. Such an Engine is expected to see this
// machine's files.
func (c *Client) Local() bool {
	return strings.HasPrefix(c.endpoint, "unix://") || strings.HasPrefix(c.endpoint, "npipe://")
}

// Close closes the connection.
func (c *Client) Close() error { return c.api.Close() }

const (
	// MinAPI is the API version of Engine 20.10, the oldest supported one.
	MinAPI = "1.41"
	// GoodEngine is the Engine version below which a warning is given. Older ones remove the rules between their bridge
	// networks for some milliseconds whenever they make a network (moby#48640).
	GoodEngine = "28.0"
	// CapableExec is the first Engine version in which an exec as root has root's capabilities in a container that
	// runs as another user (moby#45491).
	CapableExec = "24.0"
	// pingTimeout bounds the first contact with a daemon.
	pingTimeout = 10 * time.Second
)

// Server describes an Engine, as the Engine reports it.
type Server struct {
	Version string // "20.10.24+dfsg1"
	API     string // "1.41"
	OS      string // "linux"
	Arch    string // "amd64", as in GOARCH
	// BuildKit reports whether the Engine has BuildKit. Every supported Docker Engine has it; other programs with the
	// same API may not.
	BuildKit bool
}

// Connect contacts the Engine and checks that it is supported. An API that is too old is an ErrConfig, an Engine for
// other containers than Linux ones an ErrUnsupported.
func (c *Client) Connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	pong, err := c.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return c.unreachable(err)
	}
	api, os := pong.APIVersion, pong.OSType
	if api == "" || os == "" { // of an Engine that answers the ping with an error
		s, err := c.Server(ctx)
		if err != nil {
			return err
		}
		api, os = s.API, s.OS
	}
	if VersionLess(api, MinAPI) {
		return &fumehood.Error{
			Op: "connect to " + c.endpoint, Class: fumehood.ErrConfig,
			Err:  fmt.Errorf("the engine has API %s, at least %s is needed", api, MinAPI),
			Hint: "upgrade to Docker Engine 20.10 or newer",
		}
	}
	if os != "linux" {
		return &fumehood.Error{
			Op: "connect to " + c.endpoint, Class: fumehood.ErrUnsupported,
			Err:  fmt.Errorf("the engine runs %s containers", os),
			Hint: "switch it to Linux containers",
		}
	}
	return nil
}

// Server describes the Engine. It asks it once: this takes several milliseconds, because Docker starts its helpers to
// ask for their versions.
func (c *Client) Server(ctx context.Context) (Server, error) {
	if s := c.server.Load(); s != nil {
		return *s, nil
	}
	answer := c.asking.DoChan("", func() (any, error) { return c.askServer(context.WithoutCancel(ctx)) })
	select {
	case a := <-answer:
		s, _ := a.Val.(Server)
		return s, a.Err
	case <-ctx.Done():
		return Server{}, c.unreachable(ctx.Err())
	}
}

// askServer asks the Engine to describe itself.
func (c *Client) askServer(ctx context.Context) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	v, err := c.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return Server{}, c.unreachable(err)
	}
	s := Server{Version: v.Version, API: v.APIVersion, OS: v.Os, Arch: v.Arch, BuildKit: true}
	for _, part := range v.Components {
		s.BuildKit = s.BuildKit && !strings.HasPrefix(part.Name, "Podman")
	}
	c.server.Store(&s)
	return s, nil
}

// VersionLess compares dotted versions number by number. It ignores what follows the digits of a number, so
// 20.10.24+dfsg1 equals 20.10.24.
func VersionLess(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) < 0 }

// numbers returns the numbers of a dotted version, without trailing zeros.
func numbers(version string) (all []int) {
	for part := range strings.SplitSeq(version, ".") {
		digits := strings.IndexFunc(part+".", func(r rune) bool { return r < '0' || r > '9' })
		n, _ := strconv.Atoi(part[:digits]) // 0 if there are no digits
		all = append(all, n)
	}
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	return all
}
