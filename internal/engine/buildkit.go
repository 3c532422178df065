package engine

import (
	"context"
	"encoding/json"
	"net"

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

// trace handles a progress message of BuildKit.
func (o *buildOutput) trace(aux json.RawMessage) {
	var encoded []byte
	var status controlapi.StatusResponse
	if json.Unmarshal(aux, &encoded) != nil || status.UnmarshalVT(encoded) != nil {
		return // progress messages are optional: the result of the build counts
	}
	for _, v := range status.GetVertexes() {
		o.steps.Step(v.GetDigest(), v.GetName(), v.GetStarted() != nil, v.GetError())
	}
	for _, l := range status.GetLogs() {
		o.steps.Print(l.GetVertex(), string(l.GetMsg()))
	}
}
