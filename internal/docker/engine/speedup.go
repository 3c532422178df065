package engine

import "time"

// Speedup divides timeouts and pauses. Zero and one change nothing. Tests set it to wait less.
type Speedup int

// Of returns d divided by s.
func (s Speedup) Of(d time.Duration) time.Duration {
	if s > 1 {
		return d / time.Duration(s)
	}
	return d
}
