package server

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// metrics counts requests by the hundreds of their statuses, and starts that were refused.
type metrics struct {
	requests [6]atomic.Int64
	refused  atomic.Int64
}

func (m *metrics) request(status int) {
	if n := status / 100; n > 0 && n < len(m.requests) {
		m.requests[n].Add(1)
	}
}

// serveMetrics writes the metrics in Prometheus's text format.
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.mu.Lock()
	leases := len(s.leases)
	s.mu.Unlock()
	gauge := func(name, help string, value int64) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s gauge\n%[1]s %[3]d\n", name, help, value)
	}
	gauge("fumehood_leases", "Leases of clients.", int64(leases))
	gauge("fumehood_sandboxes", "Sandboxes that were started or are being started, and not removed, without kept ones.", s.sandboxes.Load())
	gauge("fumehood_sandboxes_starting", "Sandboxes that are being started.", s.starting.Load())
	gauge("fumehood_sandboxes_max", "Highest number of sandboxes.", int64(s.opts.Limits.Sandboxes))
	var draining int64
	if s.draining.Load() {
		draining = 1
	}
	gauge("fumehood_draining", "1 if the server is about to end and starts no sandboxes, else 0.", draining)
	gauge("fumehood_commands", "Running commands.", s.commands.Load())
	gauge("fumehood_streams", "Open streams to ports of sandboxes.", s.streams.Load())
	const refused = "fumehood_starts_refused_total"
	fmt.Fprintf(w, "# HELP %s Starts of sandboxes that were refused: too many, or about to end.\n# TYPE %[1]s counter\n%[1]s %d\n", refused, s.metrics.refused.Load())
	const requests = "fumehood_requests_total"
	fmt.Fprintf(w, "# HELP %s Answered requests by status.\n# TYPE %[1]s counter\n", requests)
	for i := 1; i < len(s.metrics.requests); i++ {
		fmt.Fprintf(w, "%s{status=\"%dxx\"} %d\n", requests, i, s.metrics.requests[i].Load())
	}
}
