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

// BuildKit receives the build context in the request, as the Engine's own builder does. It requests only secrets
// separately, by gRPC over another connection.

// secrets serves a build's secrets until end is called. Without secrets it opens no session.
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
		}) // if the session fails, the build reports it
	}()
	return s.ID(), func() {
		_ = s.Close()
		<-ended
	}, nil
}

// traceID marks BuildKit's progress messages.
const traceID = "moby.buildkit.trace"

// buildKitExit matches the end of BuildKit's message about a program that failed.
var buildKitExit = regexp.MustCompile(`(?:did not complete successfully|executor failed running .*): exit code: ([0-9]+)$`)

// vertex is a build step of BuildKit. Several may run at once.
type vertex struct {
	name    string // "[2/3] RUN make"
	started bool
	printed string // the end of its output
}

// trace handles a progress message of BuildKit.
func (o *buildOutput) trace(aux json.RawMessage) {
	var encoded []byte
	var status controlapi.StatusResponse
	if json.Unmarshal(aux, &encoded) != nil || status.UnmarshalVT(encoded) != nil {
		return // progress messages are optional: the result of the build counts
	}
	if o.vertices == nil {
		o.vertices = map[string]*vertex{}
	}
	for _, v := range status.GetVertexes() {
		of := o.vertices[v.GetDigest()]
		if of == nil {
			of = &vertex{name: line(o.mask(v.GetName()))}
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
			of.printed = lastOf(o.mask(of.printed + string(l.GetMsg())))
			if o.step == of.name {
				o.printed = of.printed
			}
		}
	}
}
