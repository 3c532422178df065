// Package engine speaks to a Docker Engine. It is the only package that imports the Engine's client, and
// the only one that looks at the text of its errors: what leaves it are the classes of package fumehood.
package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
)

// Client is a connection to one Engine. Its methods may be called by many goroutines at once.
type Client struct {
	api      client.APIClient
	endpoint string
	speedup  Speedup
	secret   Secret
}

// New wraps the Engine's client. endpoint is how it is called in errors. secret is the key of the seals.
func New(api client.APIClient, endpoint string, speedup Speedup, secret Secret) *Client {
	return &Client{api: api, endpoint: endpoint, speedup: speedup, secret: secret}
}

// Endpoint is the address of the Engine, for people.
func (c *Client) Endpoint() string { return c.endpoint }

// Local reports whether the Engine is reached by a socket of this machine, so that it can be expected
// to see this machine's files.
func (c *Client) Local() bool {
	return strings.HasPrefix(c.endpoint, "unix://") || strings.HasPrefix(c.endpoint, "npipe://")
}

// Close ends the connection.
func (c *Client) Close() error { return c.api.Close() }

const (
	// MinAPI is the API version of Engine 20.10, the oldest that works.
	MinAPI = "1.41"
	// GoodEngine is the Engine version below which there is a warning: older ones lack later fixes of
	// their isolation.
	GoodEngine = "24.0.6"
	// CapableExec is the Engine version since which an exec as root has root's capabilities in a container of another user
	// (moby#45491).
	CapableExec = "24.0"
	// pingTimeout bounds the first word with a daemon.
	pingTimeout = 10 * time.Second
)

// Server is what an Engine says of itself.
type Server struct {
	Version string // "20.10.24+dfsg1"
	API     string // "1.41"
	OS      string // "linux"
	Arch    string // "amd64", as Go names it
	// BuildKit says whether it has BuildKit: every Docker Engine that we work with does, others that speak its API do not.
	BuildKit bool
}

// Connect makes sure that there is an Engine that we can work with.
func (c *Client) Connect(ctx context.Context) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := c.api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return Server{}, c.unreachable(err)
	}
	v, err := c.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return Server{}, c.unreachable(err)
	}
	s := Server{Version: v.Version, API: v.APIVersion, OS: v.Os, Arch: v.Arch, BuildKit: true}
	for _, part := range v.Components {
		s.BuildKit = s.BuildKit && !strings.HasPrefix(part.Name, "Podman")
	}
	if VersionLess(s.API, MinAPI) {
		return s, &fumehood.Error{
			Op: "connect to " + c.endpoint, Class: fumehood.ErrConfig,
			Err:  fmt.Errorf("engine %s speaks API %s, at least %s is needed", s.Version, s.API, MinAPI),
			Hint: "upgrade to Docker Engine 20.10 or newer",
		}
	}
	if s.OS != "linux" {
		return s, &fumehood.Error{
			Op: "connect to " + c.endpoint, Class: fumehood.ErrUnsupported,
			Err:  fmt.Errorf("the engine runs %s containers", s.OS),
			Hint: "switch it to Linux containers",
		}
	}
	return s, nil
}

// VersionLess compares dotted versions number by number; what follows a number's digits is ignored, so
// 20.10.24+dfsg1 is 20.10.24.
func VersionLess(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) < 0 }

// numbers are those of a dotted version, without zeros at the end.
func numbers(version string) (all []int) {
	for part := range strings.SplitSeq(version, ".") {
		digits := strings.IndexFunc(part+".", func(r rune) bool { return r < '0' || r > '9' })
		n, _ := strconv.Atoi(part[:digits]) // 0 where there are none
		all = append(all, n)
	}
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	return all
}
