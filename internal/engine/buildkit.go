package engine

import (
	"context"
	"encoding/json"
	"net"
	"regexp"
	"strings"

	controlapi "github.com/moby/buildkit/api/services/control"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/secrets/secretsprovider"
)

// BuildKit gets its context in the request, as the Engine's own builder does. What it does not get that way are
// secrets, which it asks for by gRPC over a connection of their own.

// secrets serves a build's secrets until end is called. Without any there is no session.
func (c *Client) secrets(ctx context.Context, secrets map[string][]byte) (id string, end func(), err error) {
	if len(secrets) == 0 {
		return "", func() {}, nil
	}
	s, err := session.NewSession(ctx, "")
	if err != nil {
		return "", nil, err
	}
	s.Allow(secretsprovider.FromMap(secrets))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx, func(ctx context.Context, proto string, meta map[string][]string) (net.Conn, error) {
			return c.api.DialHijack(ctx, "/session", proto, meta)
		}) // a build that misses it tells
	}()
	return s.ID(), func() {
		_ = s.Close()
		<-ended
	}, nil
}

// traceID marks the messages in which BuildKit tells what it does.
const traceID = "moby.buildkit.trace"

// buildKitExit is how BuildKit ends its message of a step's program that has failed.
var buildKitExit = regexp.MustCompile(`(?:did not complete successfully|executor failed running .*): exit code: ([0-9]+)$`)

// vertex is a step of BuildKit's. Several run at once.
type vertex struct {
	name    string // "[2/3] RUN make"
	started bool
	printed string // the end of what it has printed
}

// trace follows a message of BuildKit's.
func (o *buildOutput) trace(aux json.RawMessage) {
	var encoded []byte
	var status controlapi.StatusResponse
	if json.Unmarshal(aux, &encoded) != nil || status.UnmarshalVT(encoded) != nil {
		return // the end of the build counts, not what is told meanwhile
	}
	if o.vertices == nil {
		o.vertices = map[string]*vertex{}
	}
	for _, v := range status.GetVertexes() {
		of := o.vertices[v.GetDigest()]
		if of == nil {
			of = &vertex{name: line(v.GetName())}
			o.vertices[v.GetDigest()] = of
		}
		if v.GetStarted() != nil && !of.started {
			of.started = true
			if !strings.HasPrefix(of.name, "[internal]") {
				o.report(of.name)
			}
		}
		if v.GetError() != "" && !strings.HasSuffix(v.GetError(), "context canceled") {
			o.step, o.printed = of.name, of.printed
		}
	}
	for _, l := range status.GetLogs() {
		if of := o.vertices[l.GetVertex()]; of != nil {
			of.printed = lastOf(of.printed + string(l.GetMsg()))
			if o.step == of.name {
				o.printed = of.printed
			}
		}
	}
}
