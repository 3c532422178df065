package server

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood/api"
)

// op describes an operation of the API.
type op struct {
	method, path, id, summary, tag string
}

// The content types of answers that are not JSON.
const (
	typeLines = "application/x-ndjson"
	typeBytes = "application/octet-stream"
	typeTar   = "application/x-tar"
)

// answered are the statuses of failures.
var answered = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusGone,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusMisdirectedRequest, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
}

// register adds an operation. Its handler's errors become answers.
func register[I, O any](s *Server, o op, handler func(context.Context, *I) (*O, error)) {
	huma.Register(s.api, s.operation(o), func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		return out, toAnswer(err)
	})
}

// registerStream adds an operation whose answer is a stream of a content type. Lines have the type of item.
func registerStream[I any](s *Server, o op, contentType string, item any, handler func(context.Context, *I) (*huma.StreamResponse, error)) {
	operation := s.operation(o)
	schema := &huma.Schema{Type: huma.TypeString, Format: "binary"}
	if item != nil {
		schema = s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(item), true, "")
	}
	operation.Responses = map[string]*huma.Response{strconv.Itoa(http.StatusOK): {
		Description: "OK", Content: map[string]*huma.MediaType{contentType: {Schema: schema}},
	}}
	huma.Register(s.api, operation, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		out, err := handler(ctx, in)
		return out, toAnswer(err)
	})
}

func (s *Server) operation(o op) huma.Operation {
	return huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Summary: o.summary, Tags: []string{o.tag}, Errors: answered,
		MaxBodyBytes: s.opts.Limits.Body, BodyReadTimeout: -1, // the guard has its own
	}
}

// follow answers with a stream of JSON values that produce sends, and with heartbeats while it sends none. The context of
// produce ends with ctx, with life, and when a value cannot be sent.
func follow(
	ctx, life context.Context, heartbeat any, produce func(ctx context.Context, send func(any)),
) *huma.StreamResponse {
	return lines(func(send func(any) error) {
		ctx, cancel := within(ctx, life)
		silent := time.NewTicker(beat)
		defer silent.Stop()
		var mu sync.Mutex
		var last time.Time
		sendNext := func(v any) {
			silent.Reset(beat)
			if last = time.Now(); send(v) != nil {
				cancel()
			}
		}
		var beating sync.WaitGroup
		defer beating.Wait()
		defer cancel()
		beating.Go(func() {
			for {
				select {
				case <-silent.C:
				case <-ctx.Done():
					return
				}
				mu.Lock()
				if time.Since(last) >= beat/2 { // else a value was sent meanwhile, perhaps the last one
					sendNext(heartbeat)
				}
				mu.Unlock()
			}
		})
		produce(ctx, func(v any) { // in the request's own goroutine, which may panic
			mu.Lock()
			defer mu.Unlock()
			sendNext(v)
		})
	})
}

// lines answers with a stream of JSON values, each on a line and sent at once. write returns when the stream is over,
// or when send fails.
func lines(write func(send func(any) error)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", typeLines)
		w := c.BodyWriter()
		write(func(v any) error {
			err := api.Encode(w, "", v)
			if f, ok := w.(http.Flusher); ok && err == nil {
				f.Flush()
			}
			return err
		})
	}}
}
