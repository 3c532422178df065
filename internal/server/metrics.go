package server

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// metrics counts requests by the hundreds of their statuses.
type metrics struct{ requests [6]atomic.Int64 }

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
	gauge("fumehood_sandboxes", "Sandboxes that were started and not removed.", s.sandboxes.Load())
	gauge("fumehood_commands", "Running commands.", s.commands.Load())
	gauge("fumehood_streams", "Open streams to ports of sandboxes.", s.streams.Load())
	const requests = "fumehood_requests_total"
	fmt.Fprintf(w, "# HELP %s Answered requests by status.\n# TYPE %[1]s counter\n", requests)
	for i := 1; i < len(s.metrics.requests); i++ {
		fmt.Fprintf(w, "%s{status=\"%dxx\"} %d\n", requests, i, s.metrics.requests[i].Load())
	}
}
