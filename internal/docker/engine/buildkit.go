package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"

	controlapi "github.com/moby/buildkit/api/services/control"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/filesync"
	"github.com/moby/buildkit/session/secrets/secretsprovider"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood/internal/image"
)

// BuildKit receives the build context in the request, as the Engine's own builder does. It requests secrets separately,
// by gRPC over another connection, and also the context and the Dockerfile if steps must not see the Dockerfile.

// serve serves what BuildKit requests separately, until end is called. It changes the context and the options accordingly.
// If there is nothing to serve, it opens no session.
func (c *Client) serve(ctx context.Context, o image.Order, content *io.Reader, opts *client.ImageBuildOptions) (end func(), err error) {
	var served []session.Attachable
	closeAll := func() {}
	if len(o.Secrets) > 0 {
		secrets := map[string][]byte{}
		for _, s := range o.Secrets {
			secrets[s.ID] = []byte(s.Content)
		}
		served = append(served, secretsprovider.FromMap(secrets))
	}
	if o.Inline != "" {
		files, err := spool(*content)
		if err != nil {
			return nil, err
		}
		closeAll = files.close
		served = append(served, filesync.NewFSSyncProvider(filesync.StaticDirSource{"context": files, "dockerfile": dockerfileOnly(o.Inline)}))
		*content, opts.RemoteContext, opts.Dockerfile = nil, "client-session", dockerfileName
	}
	if len(served) == 0 {
		return closeAll, nil
	}
	// BuildKit takes files of an earlier context of the same key for these if their sizes and times are equal.
	s, err := session.NewSession(ctx, rand.Text())
	if err != nil {
		closeAll()
		return nil, err
	}
	for _, a := range served {
		s.Allow(a)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx, func(ctx context.Context, proto string, meta map[string][]string) (net.Conn, error) {
			return c.api.DialHijack(ctx, "/session", proto, meta)
		}) // if the session fails, the build reports it
	}()
	opts.SessionID = s.ID()
	return func() {
		_ = s.Close()
		<-ended
		closeAll()
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
